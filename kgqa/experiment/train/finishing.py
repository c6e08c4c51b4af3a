"""What lies beside the weights in the end: curves, report, card, and the manifest, which is written last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from kgqa.artefacts.manifest import MANIFEST
from kgqa.artefacts.trained import CARD, Trained, TrainedExamples
from kgqa.engines.chat import ChatTemplate
from kgqa.experiment.data import sources
from kgqa.experiment.run.manifest import origin
from kgqa.experiment.train.examples import Parted
from kgqa.experiment.train.held_out import baselines, confusion, losses, measured
from kgqa.experiment.train.request import TrainRequest
from kgqa.experiment.train.tracking import track
from kgqa.report.training import card, curves_svg, report
from kgqa.storage import json_text, replace_file, sha256, text_digest
from kgqa.training.curves import CURVES, CurvePoint, curve, curve_csv, series
from kgqa.training.job import ADAPTER, ENCODER, MODEL, Outcome

REPORT, PICTURE = "report.html", "losses.svg"


def finish(request: TrainRequest, examples: Parted, places: tuple[Path, Path], command: Sequence[str]) -> Iterator[str]:
    """Write all of it; gives lines for a person. `places`: the folder, and that of the base."""
    folder, base = places
    points, outcome = curve(folder), Outcome.read(folder)
    trained = _trained(request, examples, (outcome, points), base, command)
    curves = curves_svg(trained.name, series(points))
    replace_file(folder / CURVES, curve_csv(points))
    replace_file(folder / PICTURE, curves)
    replace_file(folder / REPORT, report(trained, curves, confusion(folder, examples)))
    replace_file(folder / CARD, card(trained))
    replace_file(folder / MANIFEST, json_text(trained.json()))
    if line := track(request, trained, folder, series(points)):
        yield line


def _trained(
    request: TrainRequest,
    examples: Parted,
    done: tuple[Outcome, Sequence[CurvePoint]],
    base: Path,
    command: Sequence[str],
) -> Trained:
    outcome, points = done
    training, folder = request.training, request.folder(examples)
    made_by = origin(command)
    return Trained(
        name=request.name,
        kind=request.kind,
        recipe=request.recipe,
        settings=request.settings,
        command=made_by.command,
        base=request.base.preset,
        base_sha256=request.base.digest(),
        base_folder_sha256=request.base.folder_digest(base),
        base_licence=request.base.licence,
        template_sha256=None if request.pairs else _template_sha256(base),
        rank=getattr(training, "rank", None),
        weights=dict(_weights(folder)),
        examples=_examples(examples, outcome),
        seed=training.seed,
        precision=training.precision,
        steps=outcome.steps,
        epochs=round(float(points[-1].epoch or 0), 3) if points else 0,
        tokens=outcome.tokens,
        seconds=outcome.seconds,
        peak_memory=outcome.peak_memory,
        trainable=outcome.trainable,
        parameters=outcome.parameters,
        device=outcome.device,
        processes=outcome.processes,
        losses=losses(points, outcome),
        measured=measured(outcome, folder, examples, training.seed),
        baselines=baselines(folder, examples),
        kgqa=made_by.kgqa,
        versions=outcome.versions,
    )


def _examples(examples: Parted, outcome: Outcome) -> TrainedExamples:
    known = sources()
    return TrainedExamples(
        collected=str(examples.collected) if examples.collected else None,
        made_of=examples.made_of,
        sha256=examples.sha256,
        count=len(examples.train),
        questions=len(examples.questions),
        left_out=outcome.left_out,
        cut=outcome.cut,
        held_out_count=len(examples.held_out),
        held_out=tuple(_hash(name) for name in examples.held_out_questions),
        question_hashes=tuple(_hash(name) for name in examples.questions),
        text_hashes=examples.text_hashes,
        templates=examples.templates,
        licences=tuple(f"{name}: {known[name].licence}" for name in examples.made_of if name in known),
    )


def _hash(question: str) -> str:
    """As `question_hashes` has it of DATASET/ID; a file of texts names its questions as it likes."""
    dataset, slash, name = question.partition("/")
    return text_digest(f"{dataset}\n{name}" if slash else question, 16)


def _template_sha256(base: Path) -> str | None:
    source = ChatTemplate.of(base).source
    return None if source is None else text_digest(source)


def _weights(folder: Path) -> Iterator[tuple[str, str]]:
    """The files of what was trained."""
    for name in (ADAPTER, MODEL, ENCODER):
        for file in sorted((folder / name).rglob("*")):
            if file.is_file():
                yield str(file.relative_to(folder)), sha256(file)
