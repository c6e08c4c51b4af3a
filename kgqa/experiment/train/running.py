"""`kgqa train`: from the examples to a folder with weights, curves, card and manifest; the same command goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from kgqa.artefacts.trained import Trained
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.train.examples import Parted
from kgqa.experiment.train.finishing import finish
from kgqa.experiment.train.request import TrainRequest
from kgqa.extras import absent
from kgqa.runtime.display import Advance, Display
from kgqa.runtime.watch import watched
from kgqa.storage import OUT_ELSEWHERE, locked, made, replace_file, storing
from kgqa.training.job import EXAMPLES, HELD_OUT, LOCK, OUTCOME, TRAIN, Job
from kgqa.training.launch import run
from kgqa.training.progress import Said

NEEDS = {
    "LoraTraining": ("train", ("torch", "transformers", "accelerate", "peft")),
    "Seq2SeqTraining": ("train", ("torch", "transformers", "accelerate")),
    "BiEncoderTraining": ("sentence-transformers", ("torch", "transformers", "accelerate", "sentence_transformers")),
}


def check(request: TrainRequest) -> None:
    """Raises ConfigError: a library that the training needs is not installed."""
    extra, libraries = NEEDS[request.kind]
    if getattr(request.training, "quantization", "none") == "nf4":
        extra, libraries = "train,quantization", (*libraries, "bitsandbytes")
    if missing := absent(libraries):
        nf4 = "; or give train.quantization=none" if missing == ["bitsandbytes"] else ""
        raise ConfigError(f"kgqa train {request.recipe} needs {', '.join(missing)}; pip install 'kgqa[{extra}]'{nf4}")


def finished(folder: Path) -> Trained | None:
    """What was trained there, where it came to its end."""
    try:
        return Trained.read(folder)
    except DataError:
        return None


def train(request: TrainRequest, examples: Parted, command: Sequence[str], display: Display) -> Path:
    """The folder of what is trained; one that is finished is left as it is.

    Raises:
        ConfigError: a library is missing, the base does not fit, or another process trains the same.
        DataError: an example, a checkpoint or the base cannot be read.
        StorageError: the disk is full or refuses.
        UsageError: `train.max_hours` are over; the same command goes on.
        EngineDied: the trainer died.
    """
    folder = request.folder(examples)
    if finished(folder):
        display.line(f"{folder}: trained with these examples and settings")
        return folder
    check(request)

    def refuse() -> None:
        raise ConfigError(f"{folder}: another kgqa process is training this; wait for it, or give another train.name=")

    with storing(folder, OUT_ELSEWHERE):
        made(folder)
    with locked(folder / LOCK, refuse, OUT_ELSEWHERE), watched(display, "train", folder) as told:
        base = request.base.folder(told.line)
        job = Job(
            kind=request.kind, recipe=asdict(request.training), base=str(base.absolute()), named=request.base.preset,
            folder=str(folder.absolute()),
        )  # fmt: skip
        if not (folder / OUTCOME).is_file():
            for name, text in zip((TRAIN, HELD_OUT), examples.texts, strict=True):
                replace_file(folder / EXAMPLES / name, text)
            with told.counting("steps") as advance:
                run(job, request.training.processes, heard(advance, told))
        for line in finish(request, examples, (folder, base), command):
            told.line(line)
    return folder


def heard(advance: Advance, display: Display, name: str = "training") -> Callable[[Said], None]:
    """Shows what the trainer of that name says."""
    reached, steps = 0, 0
    first = "" if name == "training" else f"{name}: "

    def hear(said: Said) -> None:
        nonlocal reached, steps
        if said.event == "begin":
            steps = said.steps or 0
            advance(name, said.step, steps)
            reached = said.step
        elif said.event == "step":
            advance(name, said.step - reached, steps)
            reached = said.step
        elif said.event == "held_out":
            display.line(f"{first}step {said.step:,}: held-out loss {said.loss:.4f}")
        elif said.event == "note":
            display.line(f"{first}{said.text or ''}")

    return hear
