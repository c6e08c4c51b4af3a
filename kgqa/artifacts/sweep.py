"""The files of a sweep's folder.

`sweep.json` lists the cells. `cells/003.yaml` is the frozen configuration of a cell, `cells/003.json` its state and
`cells/003.log` its output. `tune.json` is the record of `kgqa tune`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from kgqa.artifacts.metrics import Estimate, Metrics
from kgqa.artifacts.predictions import question_ids
from kgqa.artifacts.run import SWEEP, FinishedRun
from kgqa.artifacts.schema import Artifact, Number, omit_none, read
from kgqa.types import Json
from kgqa.util import fs

TUNE = "tune.json"
_MISSING = "no such file, so this is not the folder of a sweep. Name outputs/sweeps/NAME."
_REMEDY = "Remove it and run the sweep's command again."


class CellState(Artifact):
    """The state of a cell. `asked`: a hash of the questions that the run of a done cell answered."""

    status: Literal["running", "done", "failed", "not run", "interrupted", "changed"]  # the last two only in reports
    run: str | None
    seconds: Number
    error: str | None  # one line
    asked: str | None = omit_none()

    @classmethod
    def read(cls, path: Path, number: int) -> CellState | None:
        """Read a state, or return None if the cell has not started. Raises DataError if the file is damaged."""
        file = cell_file(path, number, "json")
        return read(cls, file, remedy=_REMEDY) if fs.has_content(file) else None

    def write(self, path: Path, number: int) -> None:
        fs.replace_file(cell_file(path, number, "json"), fs.json_text(self.json()))


class SweepCell(Artifact):
    """A cell as `sweep.json` lists it. `run`: its folder. None: unknown when the sweep started."""

    number: int
    name: str
    overrides: tuple[str, ...]
    run: str | None
    frozen: str = ""  # a hash of its configuration
    state: CellState | None = Field(default=None, exclude=True)  # None: not started
    finished: FinishedRun | None = Field(default=None, exclude=True)  # only in reports

    @property
    def status(self) -> str:
        return self.state.status if self.state else "waiting"

    @property
    def error(self) -> str | None:
        return self.state.error if self.state else None

    @property
    def metrics(self) -> Metrics:
        assert self.finished is not None
        return self.finished.metrics

    @property
    def values(self) -> dict[str, str]:
        """Return the values by key."""
        pairs = (override.lstrip("+~").partition("=") for override in self.overrides)
        return {key: value for key, _, value in pairs}


class SweepPlan(Artifact):
    """`axes`: values by key. `differing`: the values of all cells by key. `search`: a hash of a search's settings."""

    search: str | None = omit_none()
    command: tuple[str, ...]
    axes: Mapping[str, tuple[Json, ...]]
    differing: Mapping[str, tuple[Json, ...]] | None = omit_none()
    cells: tuple[SweepCell, ...]

    @classmethod
    def read(cls, path: Path) -> SweepPlan:
        """Read a plan with the states of its cells. Raises DataError if the folder is no sweep's or is damaged."""
        plan = read(cls, path / SWEEP, missing=_MISSING, remedy=_REMEDY)
        cells = (cell.replace(state=CellState.read(path, cell.number)) for cell in plan.cells)
        return plan.replace(cells=tuple(cells))


class TunedPart(Artifact):
    """Some questions of one data file, in its order."""

    file: str | None  # None: the dataset's own file
    sha256: str
    questions: int
    ids: tuple[str, ...]


class TunedCell(Artifact):
    """A cell with its score. None: no finished run."""

    cell: int
    settings: str
    run: str | None
    status: str
    error: str | None
    score: Estimate | None


class TuneRecord(Artifact):
    """`chosen`: the best cell on dev. `tested`: a run per set of few-shot examples, with the mean of their scores."""

    command: tuple[str, ...]
    metric: str
    sets: tuple[str, ...]  # of few-shot examples
    dev: TunedPart
    test: TunedPart
    tried: tuple[TunedCell, ...]
    chosen: int | None = None
    tested: tuple[TunedCell, ...] = ()
    mean: Number | None = None
    std: Number | None = None


def questions_asked(run: Path) -> str:
    """Return a hash of the questions that a run answered. Another command can change them in the same folder."""
    return fs.ids_digest(question_ids(run))


def sweep_name(frozen: Sequence[str]) -> str:
    """Return a hash of the cells' configurations."""
    return fs.text_digest("\n".join(frozen), 8)


def cell_file(path: Path, number: int, suffix: str) -> Path:
    return path / "cells" / f"{number:03}.{suffix}"
