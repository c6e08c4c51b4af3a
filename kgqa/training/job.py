"""What a trainer's process is told, in a file, and what it leaves when it has come to its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kgqa.artefacts.form import Number, as_json, read
from kgqa.types import Json

SETTINGS, OUTCOME = "settings.json", "outcome.json"
TRAIN, HELD_OUT = "train.jsonl", "held_out.jsonl"  # texts, below `EXAMPLES`
EXAMPLES, CHECKPOINTS, LOG = "examples", "checkpoints", "worker.log"
BEFORE, REPLIES = "before.json", "replies.jsonl"  # what the untrained model made of the held-out examples; and both
LOCK, WORKER_LOCK = ".lock", ".worker.lock"  # held by who started the training, and by who trains
ADAPTER, MODEL, ENCODER = "adapter", "model", "encoder"  # folders of what was trained


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """`kind`: the class in `kgqa.training`, `recipe`: its fields. `base`: a transformers folder.

    `named`: what an adapter calls its base, so that no path of this machine is in it.
    """

    kind: str
    recipe: Mapping[str, Json]
    base: str
    named: str
    folder: str

    @classmethod
    def read(cls, file: Path) -> Job:
        """Raises DataError: it is gone, or damaged."""
        return read(cls, file, missing="no such file; a trainer is started by kgqa train")

    def json(self) -> dict[str, Json]:
        written: dict[str, Json] = as_json(self)
        return written

    @property
    def place(self) -> Path:
        return Path(self.folder)

    @property
    def train(self) -> Path:
        return self.place / EXAMPLES / TRAIN

    @property
    def held_out(self) -> Path:
        return self.place / EXAMPLES / HELD_OUT


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`tokens`, `seconds`: of all its sittings, of padding nothing. `peak_memory`: bytes, of the device or process.

    `measured`: held-out figures by name, of each held-out example in order, before and after; a figure is None where
    there is none of this example.
    """

    steps: int
    examples: int
    left_out: int  # examples longer than train.max_length
    cut: int  # examples that were cut to it
    trainable: int
    parameters: int
    tokens: int
    seconds: Number
    peak_memory: int
    device: str
    processes: int
    versions: Mapping[str, str]
    held_out_loss: tuple[Number | None, Number | None]  # before and after, nats a token
    measured: Mapping[str, tuple[tuple[Number | None, ...], tuple[Number | None, ...]]]

    @classmethod
    def read(cls, folder: Path) -> Outcome:
        """Raises DataError: the training has not come to its end, or the file is damaged."""
        return read(cls, folder / OUTCOME, missing="no such file: the training has not come to its end")

    def json(self) -> dict[str, Json]:
        written: dict[str, Json] = as_json(self)
        return written
