"""Run one training, from the examples to a folder with weights, curves, card and manifest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from kgqa.artifacts.trained import Trained
from kgqa.errors import ConfigError, DataError
from kgqa.runtime.display import Advance, Display
from kgqa.runtime.monitor import monitor_work
from kgqa.training.train.finishing import finish
from kgqa.training.train.request import ExampleSplit, TrainRequest
from kgqa.training.trainers.process import run_worker
from kgqa.training.trainers.task import EXAMPLES, HELD_OUT, LOCK, RESULT, TRAIN, TrainEvent, TrainTask
from kgqa.util.fs import OUT_ELSEWHERE, lock_file, replace_file
from kgqa.util.optional_deps import missing_imports


def check_packages(request: TrainRequest) -> None:
    """Raise ConfigError if a library that the training needs is not installed."""
    extra, modules = request.training.packages
    if missing := missing_imports(list(modules)):
        hint = modules[missing[0]]
        raise ConfigError(f"kgqa train {request.recipe} needs {', '.join(missing)}; pip install 'kgqa[{extra}]'{hint}")


def is_finished(folder: Path) -> bool:
    try:
        Trained.read(folder)
    except DataError:
        return False
    return True


def train(request: TrainRequest, examples: ExampleSplit, display: Display, command: Sequence[str] = ()) -> Path:
    """Train, and return the folder. A finished training is left as it is.

    Raises:
        ConfigError: a library is missing, the base does not fit, or another process trains the same.
        DataError: an example or the base cannot be read.
        StorageError: the disk is full.
        UsageError: `train.max_hours` are over. The same command continues.
        EngineDied: the trainer crashed.
    """
    folder = request.folder(examples)
    if is_finished(folder):
        display.line(f"{folder}: trained with these examples and settings")
        return folder
    check_packages(request)

    def refuse() -> None:
        raise ConfigError(f"{folder}: another kgqa process is training this; wait for it, or set another train.name=")

    with lock_file(folder / LOCK, refuse, OUT_ELSEWHERE), monitor_work(display, "train", folder) as shown:
        base = request.base.folder(shown.line)
        if not (folder / RESULT).is_file():
            for name, text in zip((TRAIN, HELD_OUT), examples.texts, strict=True):
                replace_file(folder / EXAMPLES / name, text)
            task = TrainTask(
                kind=request.kind, recipe=asdict(request.training), base=str(base.absolute()),
                base_name=request.base.preset, folder=str(folder.absolute()),
            )  # fmt: skip
            with shown.counting("steps") as advance:
                run_worker(task, request.training.processes, event_display(advance, shown))
        for line in finish(request, examples, folder, base, command or request.command):
            shown.line(line)
    return folder


def event_display(advance: Advance, display: Display) -> Callable[[TrainEvent], None]:
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
