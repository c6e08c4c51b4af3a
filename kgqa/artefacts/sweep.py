"""A sweep on disk: which cells it has, the configuration each was frozen with, and what became of each.

`sweep.json` names the cells; `cells/003.yaml` is a frozen configuration, `cells/003.json` how that cell ended and
`cells/003.log` what it said. What a cell answered lies in its run's own folder, where other sweeps find it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kgqa import storage
from kgqa.artefacts.form import LEFT_OUT, Number, as_json, checked, read, read_json
from kgqa.artefacts.predictions import question_ids
from kgqa.errors import DataError
from kgqa.types import Json

SWEEP = "sweep.json"
FORMAT = 1  # of the folder; one with another number is refused
_AGAIN = "run the sweep's command again"
_REMOVE = "remove it and run the sweep's command again"


@dataclass(frozen=True, slots=True)
class ListedCell:
    """`run`: its folder; None where that was not known when the sweep was launched."""

    number: int
    name: str
    overrides: tuple[str, ...]
    run: str | None
    frozen: str = ""  # 16 hex digits of its configuration; "": not frozen yet


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """`axes`: values by key. `differing`: by key the values of all cells. `search`: what decides a search's cells."""

    format: int = FORMAT
    search: str | None = field(default=None, metadata=LEFT_OUT)
    command: tuple[str, ...]
    axes: Mapping[str, tuple[Json, ...]]
    differing: Mapping[str, tuple[Json, ...]] | None = field(default=None, metadata=LEFT_OUT)
    cells: tuple[ListedCell, ...]

    @classmethod
    def read(cls, path: Path) -> SweepPlan:
        """
        Raises:
            DataError: not a sweep's folder, one of another version, or a damaged one; the key is named.
        """
        file = path / SWEEP
        plan = read_json(file, missing=_missing(file), remedy=_REMOVE)
        if not isinstance(plan, dict):
            raise DataError(f"{file}: not an object; {_REMOVE}")
        if plan.get("format") != FORMAT:
            raise DataError(
                f"{file}: a sweep of format {plan.get('format')}, this version of kgqa writes format {FORMAT}; "
                "give another sweep.name=, or remove the folder (its runs and replies stay)"
            )
        return checked(cls, plan, str(file), _AGAIN)

    def json(self) -> dict[str, Json]:
        written: dict[str, Json] = as_json(self)
        return written


@dataclass(frozen=True, slots=True, kw_only=True)
class CellState:
    """How far a cell is. `asked`: of a done one, the questions its run answered then."""

    status: Literal["running", "done", "failed", "not run"]
    run: str | None
    seconds: Number
    error: str | None  # one line
    asked: str | None = field(default=None, metadata=LEFT_OUT)

    @classmethod
    def read(cls, path: Path, number: int) -> CellState | None:
        """None: not begun. Raises DataError: its file is damaged; the key is named."""
        file = cell_file(path, number, "json")
        return read(cls, file, missing=_missing(file), remedy=_REMOVE) if storage.filled(file) else None

    def json(self) -> dict[str, Json]:
        written: dict[str, Json] = as_json(self)
        return written


def questions_asked(run: Path) -> str:
    """16 hex digits of what a run answered: its folder's name does not tell, so another command may change it.

    Raises:
        DataError: the run's predictions are not readable.
    """
    return storage.ids_digest(question_ids(run))


def sweep_name(frozen: Sequence[str]) -> str:
    """8 hex digits of the cells' configurations."""
    return storage.text_digest("\n".join(frozen), 8)


def in_use(path: Path) -> bool:
    """Whether a process works on this sweep."""
    return storage.in_use(path / ".lock")


def cell_file(path: Path, number: int, suffix: str) -> Path:
    return path / "cells" / f"{number:03}.{suffix}"


def _missing(file: Path) -> str:
    return f"no such file, so {file.parent} is not the folder of a sweep; give outputs/sweeps/NAME"
