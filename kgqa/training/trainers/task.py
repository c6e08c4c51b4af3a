"""The input and output of a trainer's process: its task, its events and its result."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from kgqa.artifacts.schema import Artifact, Number, omit_none, read
from kgqa.types import Json

SETTINGS, RESULT = "settings.json", "outcome.json"
TRAIN, HELD_OUT = "train.jsonl", "held_out.jsonl"  # texts, in the folder `EXAMPLES`
EXAMPLES, CHECKPOINTS, LOG = "examples", "checkpoints", "worker.log"
BEFORE, REPLIES = "before.json", "replies.jsonl"  # the untrained model on the held-out examples; replies of both
LOCK, WORKER_LOCK = ".lock", ".worker.lock"
CURVES = "losses.csv"


class TrainTask(Artifact):
    """`kind`: the class in `kgqa.training.trainers`. `recipe`: its fields. `base`: a transformers folder.

    base_name: what an adapter's configuration calls its base, so that it has no path of this machine.
    """

    kind: str
    recipe: Mapping[str, Json]
    base: str
    base_name: str
    folder: str

    @classmethod
    def read(cls, file: Path) -> TrainTask:
        """Read a task. Raises DataError: the file is missing or damaged."""
        return read(cls, file, missing="no such file; kgqa train starts a trainer")

    @property
    def path(self) -> Path:
        return Path(self.folder)


class TrainEvent(Artifact):
    """One line that the worker sends to its parent. `event`: begin, step, evaluation, note or error."""

    event: str
    step: int = 0
    steps: int | None = omit_none()
    loss: Number | None = omit_none()
    text: str | None = omit_none()


class CurvePoint(Artifact):
    """The losses at a step. Step 0 is before training; `held_out_loss` is given where it was measured."""

    step: int
    epoch: Number | None = None
    loss: Number | None = None
    held_out_loss: Number | None = None
    learning_rate: Number | None = None
    seconds: Number | None = None


class TrainResult(Artifact):
    """The figures of a finished training.

    measured: figures of the held-out examples by name, in their order, before and after training.
    """

    steps: int
    epochs: Number
    examples: int
    left_out: int  # examples longer than the limit
    cut: int  # examples truncated to it
    trainable: int
    parameters: int
    tokens: int
    seconds: Number
    peak_memory: int  # bytes
    device: str
    processes: int
    versions: Mapping[str, str]
    held_out_loss: tuple[Number | None, Number | None]  # before and after, nats per token or pair
    measured: Mapping[str, tuple[tuple[Number, ...], tuple[Number, ...]]]
    curve: tuple[CurvePoint, ...]

    @classmethod
    def read(cls, folder: Path) -> TrainResult:
        """Read the result. Raises DataError: the training is not finished, or the file is damaged."""
        return read(cls, folder / RESULT, missing="no such file: the training is not finished")

    def series(self) -> dict[str, tuple[tuple[int, float], ...]]:
        """Return (step, value) pairs by name, for plots and trackers."""
        names = ("loss", "held_out_loss", "learning_rate")
        points = {name: [(point.step, getattr(point, name)) for point in self.curve] for name in names}
        return {
            name: tuple((step, float(value)) for step, value in pairs if value is not None)
            for name, pairs in points.items()
            if any(value is not None for _, value in pairs)
        }

    def curve_csv(self) -> str:
        names = list(CurvePoint.model_fields)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([getattr(point, name) for name in names] for point in self.curve)
        return text.getvalue()
