"""`tune.json`: what was tried on dev, what was chosen, and what it comes to on test."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kgqa.artefacts.form import LEFT_OUT, Number, as_json, read
from kgqa.artefacts.metrics import Estimate
from kgqa.types import Json

TUNE = "tune.json"


@dataclass(frozen=True, slots=True)
class TunedPart:
    """Some questions of one data file, in its order."""

    file: str | None  # where it is not the data set's own
    sha256: str
    questions: int
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a cell came to; `score` is None where it has no finished run."""

    cell: int
    settings: str
    run: str | None
    status: str
    error: str | None
    score: Estimate | None


@dataclass(frozen=True, slots=True)
class Choice:
    cell: int
    settings: str


@dataclass(frozen=True, slots=True)
class OnTest:
    """`mean`, `std`: over the runs, one for each set of demonstrations; None where one of them has no score."""

    runs: tuple[Outcome, ...]
    mean: Number | None
    std: Number | None


@dataclass(frozen=True, slots=True)
class TuneRecord:
    """`chosen` and `result` are None while only dev was tried."""

    command: tuple[str, ...]
    metric: str
    sets: tuple[str, ...]  # of demonstrations
    dev: TunedPart
    test: TunedPart
    tried: tuple[Outcome, ...]
    chosen: Choice | None = field(default=None, metadata=LEFT_OUT)
    result: OnTest | None = field(default=None, metadata=LEFT_OUT)

    @classmethod
    def read(cls, folder: Path) -> TuneRecord:
        """Raises DataError: not a record of `kgqa tune`; the key is named."""
        return read(cls, folder / TUNE, remedy="give another tune.name=")

    def json(self) -> dict[str, Json]:
        written: dict[str, Json] = as_json(self)
        return written
