"""`tune.json`: what was tried on dev, what was chosen, and what it comes to on test."""

from __future__ import annotations

from pathlib import Path

from kgqa.artifacts.metrics import Estimate
from kgqa.artifacts.schema import Artifact, Number, omit_none, read

TUNE = "tune.json"


class TunedPart(Artifact):
    """Some questions of one data file, in its order."""

    file: str | None  # where it is not the data set's own
    sha256: str
    questions: int
    ids: tuple[str, ...]


class Outcome(Artifact):
    """The outcome of a cell. `score` is None without a finished run."""

    cell: int
    settings: str
    run: str | None
    status: str
    error: str | None
    score: Estimate | None


class Choice(Artifact):
    cell: int
    settings: str


class OnTest(Artifact):
    """`mean`, `std`: over the runs, one for each set of demonstrations; None where one of them has no score."""

    runs: tuple[Outcome, ...]
    mean: Number | None
    std: Number | None


class TuneRecord(Artifact):
    """`chosen` and `result` are None while only dev was tried."""

    command: tuple[str, ...]
    metric: str
    sets: tuple[str, ...]  # of demonstrations
    dev: TunedPart
    test: TunedPart
    tried: tuple[Outcome, ...]
    chosen: Choice | None = omit_none()
    result: OnTest | None = omit_none()

    @classmethod
    def read(cls, folder: Path) -> TuneRecord:
        """Read a record. Raises DataError if it is not one of `kgqa tune`; the message names the key."""
        return read(cls, folder / TUNE, remedy="give another tune.name=")
