"""Write the files next to trained weights: curves, report, card, and the manifest last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kgqa.artifacts.manifest import MANIFEST
from kgqa.artifacts.trained import CARD, Losses, Trained, TrainedExamples
from kgqa.engines.chat import ChatTemplate
from kgqa.errors import TrackerError
from kgqa.experiment.data import sources
from kgqa.experiment.run.manifest import origin
from kgqa.experiment.run.tracking import LONGEST, choose_tracker
from kgqa.protocols import TrackedRun
from kgqa.report.training import card, curves_svg, report
from kgqa.training.train.evaluation import Evaluation
from kgqa.training.train.request import ExampleSplit, TrainRequest
from kgqa.training.trainers.task import CURVES, TrainResult
from kgqa.util.fs import json_text, replace_file, sha256, text_digest
from kgqa.util.redaction import redact

REPORT, PICTURE = "report.html", "losses.svg"
TRACKED = (REPORT, CARD, CURVES, PICTURE, MANIFEST)


def finish(
    request: TrainRequest, examples: ExampleSplit, folder: Path, base: Path, command: Sequence[str]
) -> Iterator[str]:
    """Write all files of a finished training, and yield lines for the terminal. `base`: its transformers folder."""
    result, evaluation = TrainResult.read(folder), Evaluation(folder, examples)
    trained = _manifest(request, examples, folder, base, command, result, evaluation)
    curves = curves_svg(trained.name, result.series())
    replace_file(folder / CURVES, result.curve_csv())
    replace_file(folder / PICTURE, curves)
    replace_file(folder / REPORT, report(trained, curves, evaluation.confusion()))
    replace_file(folder / CARD, card(trained))
    replace_file(folder / MANIFEST, json_text(trained.json()))
    if line := track(request, trained, folder, result.series()):
        yield line


def _manifest(
    request: TrainRequest,
    examples: ExampleSplit,
    folder: Path,
    base: Path,
    command: Sequence[str],
    result: TrainResult,
    evaluation: Evaluation,
) -> Trained:
    training, made_by = request.training, origin(command)
    template = None if training.learns_pairs else ChatTemplate.of(base).source
    weights = sorted(file for file in (folder / training.output).rglob("*") if file.is_file())
    return Trained(
        name=request.name,
        kind=request.kind,
        title=training.title,
        recipe=request.recipe,
        settings=request.settings,
        command=made_by.command,
        base=request.base.preset,
        base_sha256=request.base.digest(),
        base_folder_sha256=request.base.folder_digest(base),
        base_licence=request.base.licence,
        template_sha256=template and text_digest(template),
        rank=getattr(training, "lora_r", None),
        weights={str(file.relative_to(folder)): sha256(file) for file in weights},
        examples=_examples(examples, result),
        seed=training.seed,
        precision=training.precision,
        steps=result.steps,
        epochs=result.epochs,
        tokens=result.tokens,
        seconds=result.seconds,
        peak_memory=result.peak_memory,
        trainable=result.trainable,
        parameters=result.parameters,
        device=result.device,
        processes=result.processes,
        losses=_losses(result),
        measured=evaluation.measured(result, training.seed),
        baselines=evaluation.baselines(),
        kgqa=made_by.kgqa,
        versions=result.versions,
    )


def _examples(examples: ExampleSplit, result: TrainResult) -> TrainedExamples:
    known = sources()
    return TrainedExamples(
        collected=str(examples.collected) if examples.collected else None,
        made_of=examples.made_of,
        sha256=examples.sha256,
        count=len(examples.train),
        questions=len(examples.questions),
        left_out=result.left_out,
        cut=result.cut,
        held_out_count=len(examples.held_out),
        held_out=tuple(map(_question_hash, examples.held_out_questions)),
        question_hashes=tuple(map(_question_hash, examples.questions)),
        text_hashes=examples.text_hashes,
        templates=examples.templates,
        licences=tuple(f"{name}: {known[name].licence}" for name in examples.made_of if name in known),
    )


def _question_hash(question: str) -> str:
    """Hash DATASET/ID like `question_hashes`. A file of texts can name its questions in any way."""
    dataset, slash, name = question.partition("/")
    return text_digest(f"{dataset}\n{name}" if slash else question, 16)


def _losses(result: TrainResult) -> Losses:
    losses = [float(point.loss) for point in result.curve if point.loss is not None]
    tail = losses[-max(1, len(losses) // 10) :]
    before, after = result.held_out_loss
    return Losses(
        first=losses[0] if losses else None,
        last=sum(tail) / len(tail) if tail else None,
        lowest=min(losses, default=None),
        held_out_before=before,
        held_out_after=after,
    )


def track(
    request: TrainRequest, trained: Trained, folder: Path, series: Mapping[str, tuple[tuple[int, float], ...]]
) -> str | None:
    """Send the training to the tracker, if one is chosen, and return a line with the place or the failure."""
    tracker = choose_tracker(request.config)
    if tracker is None:
        return None
    parameters = {key: redact(value)[:LONGEST] for key, value, _ in trained.settings}
    files = tuple(file for name in TRACKED if (file := folder / name).is_file())
    run = TrackedRun(f"train/{trained.name}/{folder.name}", parameters, tracked_figures(trained), files, series)
    try:
        return f"tracked: {tracker.log(run)}"
    except TrackerError as error:
        reason = " ".join(redact(error).split())
        return (
            f"warning: tracker={request.config['choices']['tracker']}: {reason:.160}; the training itself is complete"
        )


def tracked_figures(trained: Trained) -> dict[str, float]:
    """Return the figures that are defined, by name."""
    names = ("steps", "tokens", "seconds", "peak_memory", "trainable")
    figures = {name: getattr(trained, name) for name in names}
    for name in ("first", "last", "lowest"):
        figures[f"loss_{name}"] = getattr(trained.losses, name)
    for side in ("before", "after"):
        figures[f"held_out_loss_{side}"] = getattr(trained.losses, f"held_out_{side}")
    for row in trained.measured:
        name = "".join(letter if letter.isalnum() else "_" for letter in row.name)
        figures |= {f"{name}_{part}": getattr(row, part) for part in ("before", "after", "low", "high")}
    return {name: float(value) for name, value in figures.items() if value is not None}
