"""Run one training, from the examples to a folder with weights, curves, card and, last, the manifest."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean

from kgqa.artifacts.manifest import MANIFEST
from kgqa.artifacts.metrics import Estimate
from kgqa.artifacts.schema import read_lines
from kgqa.artifacts.trained import CARD, Losses, Trained, TrainedExamples, TrainFigures, is_finished
from kgqa.engines.weights import digest
from kgqa.errors import ConfigError
from kgqa.experiment.manifest import origin
from kgqa.extras.training.report import card_sections, loss_plot, training_sections
from kgqa.extras.training.train.request import ExampleSplit, TrainRequest
from kgqa.extras.training.trainers.process import (
    CHECKPOINTS,
    HELD_OUT,
    LOCK,
    REPLIES,
    RESULT,
    TRAIN,
    TextExample,
    TrainEvent,
    TrainResult,
    TrainTask,
    run_worker,
)
from kgqa.methods.steps.safe_verdict import read_verdict
from kgqa.protocols import TrackedRun
from kgqa.report.page import sections_page, svg
from kgqa.report.section import Section, markdown
from kgqa.runtime.display import Advance, Display
from kgqa.runtime.monitor import monitor_work
from kgqa.scoring.intervals import estimate
from kgqa.scoring.metrics import token_f1
from kgqa.system.downloads import list_sources
from kgqa.util.fs import OUT_ELSEWHERE, json_text, lock_file, replace_file, sha256
from kgqa.util.optional_deps import install_command, missing_imports
from kgqa.util.registry import load_registered

REPORT, PICTURE = "report.html", "losses.svg"
TRACKED = (REPORT, CARD, PICTURE, MANIFEST)


def train(
    request: TrainRequest, examples: ExampleSplit, display: Display, command: Sequence[str] = ()
) -> Path:
    """Train, and return the folder. A finished training is left as it is.

    Raises:
        ConfigError: a library is missing, the base does not fit, or another process trains the same.
        DataError: an example or the base cannot be read.
        StorageError: the disk is full.
        EngineDied: the trainer crashed.
    """
    folder = request.folder(examples)
    if is_finished(folder):
        display.line(f"{folder}: trained with these examples and settings")
        return folder
    extra, modules = request.training.packages
    if missing := missing_imports(list(modules)):
        raise ConfigError(
            f"train={request.recipe} needs {', '.join(missing)}. Install it: {install_command(extra)}"
        )

    def refuse() -> None:
        raise ConfigError(
            f"{folder}: another kgqa process is training this. Wait for it, or set another train.name="
        )

    with (
        lock_file(folder / LOCK, refuse, OUT_ELSEWHERE),
        monitor_work(display, "train", folder) as monitor,
    ):
        base = request.base.folder(monitor.line)
        if not (folder / RESULT).is_file():
            for name, text in zip((TRAIN, HELD_OUT), examples.texts, strict=True):
                replace_file(folder / name, text)
            task = TrainTask(
                kind=request.kind, recipe=asdict(request.training), base=str(base.absolute()),
                base_name=request.base.preset, folder=str(folder.absolute()),
            )  # fmt: skip
            with monitor.counting("steps") as advance:
                run_worker(task, request.training.processes, show_events(advance, monitor))
        result = TrainResult.read(folder)
        figures = evaluate(folder, examples)
        command = command or ("train", request.recipe, *request.overrides)
        trained = _manifest(request, examples, folder, base, command, result, *figures)
        plot = loss_plot(trained.name, result.series)
        sections = [Section("Losses by step", (), (), plots=[plot]), *training_sections(trained)]
        title = f"{trained.name}: {trained.title} on {trained.base}"
        replace_file(folder / PICTURE, svg(plot))
        replace_file(folder / REPORT, sections_page(title, " ".join(trained.command), sections))
        replace_file(folder / CARD, markdown(trained.name, card_sections(trained)))
        replace_file(folder / MANIFEST, json_text(trained.json()))
        shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
        if request.config.get("tracker") is not None:
            load_registered("track_training")(
                request.config, lambda: _tracked_run(trained, folder, result), monitor
            )
    return folder


def show_events(advance: Advance, display: Display) -> Callable[[TrainEvent], None]:
    """Return a function that shows the events of a trainer."""
    step, steps = 0, 0

    def show(event: TrainEvent) -> None:
        nonlocal step, steps
        if event.event in ("begin", "step"):
            steps = event.steps or steps
            advance("training", event.step - step, steps)
            step = event.step
        elif event.event == "evaluation" and event.loss is not None:
            display.line(f"step {event.step:,}: held-out loss {event.loss:.4f}")
        elif event.text:
            display.line(event.text)

    return show


def _manifest(
    request: TrainRequest,
    examples: ExampleSplit,
    folder: Path,
    base: Path,
    command: Sequence[str],
    result: TrainResult,
    measured: Mapping[str, Estimate],
    baselines: Mapping[str, float],
) -> Trained:
    training, made_by, sources = request.training, origin(command), list_sources()
    weights = sorted(file for file in (folder / training.output).rglob("*") if file.is_file())
    losses, held_out = (
        [value for _, value in result.series.get(name, ())] for name in ("loss", "held_out_loss")
    )
    tail = losses[-max(1, len(losses) // 10) :]
    return Trained(
        **{name: getattr(result, name) for name in TrainFigures.model_fields},
        name=request.name,
        kind=request.kind,
        title=training.title,
        recipe=request.recipe,
        settings=request.settings,
        command=made_by.command,
        base=request.base.preset,
        base_sha256=request.base.digest(),
        base_folder_sha256=digest(base),
        base_licence=request.base.licence,
        rank=getattr(training, "lora_r", None),
        weights={str(file.relative_to(folder)): sha256(file) for file in weights},
        examples=TrainedExamples(
            collected=str(examples.collected) if examples.collected else None,
            made_of=examples.made_of,
            sha256=examples.sha256,
            count=len(examples.train),
            questions=len(examples.question_hashes),
            left_out=result.left_out,
            cut=result.cut,
            held_out_count=len(examples.held_out),
            question_hashes=examples.question_hashes,
            text_hashes=examples.text_hashes,
            templates=examples.templates,
            licences=tuple(
                f"{name}: {sources[name].license}" for name in examples.made_of if name in sources
            ),
        ),
        seed=training.seed,
        precision=training.precision,
        losses=Losses(
            first=losses[0] if losses else None,
            last=sum(tail) / len(tail) if tail else None,
            held_out_before=held_out[0] if held_out else None,
            held_out_after=held_out[-1] if held_out else None,
        ),
        measured=measured,
        baselines=baselines,
        kgqa=made_by.kgqa,
    )


def _tracked_run(trained: Trained, folder: Path, result: TrainResult) -> TrackedRun:
    parameters = {key: str(value) for key, value, _ in trained.settings}
    files = tuple(file for name in TRACKED if (file := folder / name).is_file())
    figures = {
        name: getattr(trained, name)
        for name in ("steps", "tokens", "seconds", "peak_memory", "trainable")
    }
    figures |= {f"loss_{name}": value for name, value in trained.losses}
    for name, score in trained.measured.items():
        figures |= {
            f"{name.replace(' ', '_')}_{part}": getattr(score, part)
            for part in ("mean", "low", "high")
        }
    defined = {name: float(value) for name, value in figures.items() if value is not None}
    return TrackedRun(
        f"train/{trained.name}/{folder.name}", parameters, defined, files, result.series
    )


def evaluate(folder: Path, split: ExampleSplit) -> tuple[dict[str, Estimate], dict[str, float]]:
    """Return the figures of the replies in the folder of a training, and baselines, both in percent.

    These are token F1, and for SAFE's verdicts the accuracy of labels. The baseline is the most frequent label only.
    """
    texts = {example.id: example for example in split.held_out if isinstance(example, TextExample)}
    replies = [
        (line["reply"], texts[line["id"]])
        for _, line in read_lines(folder / REPLIES)
        if line["id"] in texts
    ]
    if not replies:
        return {}, {}
    figures = {
        "token F1": estimate([token_f1(reply, example.completion) for reply, example in replies])
    }
    if not read_verdict(replies[0][1].completion):
        return figures, {}
    verdicts = [(read_verdict(reply), example.label) for reply, example in replies]
    right = [
        float(verdict is not None and verdict.error_type == label) for verdict, label in verdicts
    ]
    label = Counter(
        example.label for example in split.train if isinstance(example, TextExample)
    ).most_common(1)[0][0]
    share = fmean(float(example.label == label) for _, example in replies)
    return {**figures, "label accuracy": estimate(right)}, {
        f"label accuracy, {label} only": 100 * share
    }
