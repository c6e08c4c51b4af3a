"""A sweep on disk: which cells it has, the configuration each was frozen with, and what became of each.

`sweep.json` names the cells; `cells/003.yaml` is a frozen configuration, `cells/003.json` how that cell ended and
`cells/003.log` what it said. What a cell answered lies in its run's own folder, where other sweeps find it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from kgqa.artifacts.predictions import question_ids
from kgqa.artifacts.schema import Artifact, Number, check_json, omit_none, read, read_json
from kgqa.errors import DataError
from kgqa.types import Json
from kgqa.util import fs

SWEEP = "sweep.json"
FORMAT = 1  # of the folder; one with another number is refused
_AGAIN = "run the sweep's command again"
_REMOVE = "remove it and run the sweep's command again"


class ListedCell(Artifact):
    """`run`: its folder; None where that was not known when the sweep was launched."""

    number: int
    name: str
    overrides: tuple[str, ...]
    run: str | None
    frozen: str = ""  # 16 hex digits of its configuration; "": not frozen yet


class SweepPlan(Artifact):
    """`axes`: values by key. `differing`: by key the values of all cells. `search`: what decides a search's cells."""

    format: int = FORMAT
    search: str | None = omit_none()
    command: tuple[str, ...]
    axes: Mapping[str, tuple[Json, ...]]
    differing: Mapping[str, tuple[Json, ...]] | None = omit_none()
    cells: tuple[ListedCell, ...]

    @classmethod
    def read(cls, path: Path) -> SweepPlan:
        """Read a plan. Raises DataError: not a sweep's folder, of another version, or damaged; the key is named."""
        file = path / SWEEP
        plan = read_json(file, missing=_missing(file), remedy=_REMOVE)
        if not isinstance(plan, dict):
            raise DataError(f"{file}: not an object; {_REMOVE}")
        if plan.get("format") != FORMAT:
            raise DataError(
                f"{file}: a sweep of format {plan.get('format')}, this version of kgqa writes format {FORMAT}; "
                "give another sweep.name=, or remove the folder (its runs and replies stay)"
            )
        return check_json(cls, plan, str(file), _AGAIN)


class CellState(Artifact):
    """The state of a cell. `asked`: for a done one, the questions that its run answered."""

    status: Literal["running", "done", "failed", "not run"]
    run: str | None
    seconds: Number
    error: str | None  # one line
    asked: str | None = omit_none()

    @classmethod
    def read(cls, path: Path, number: int) -> CellState | None:
        """Read a state; None: not started. Raises DataError if the file is damaged; the message names the key."""
        file = cell_file(path, number, "json")
        return read(cls, file, missing=_missing(file), remedy=_REMOVE) if fs.has_content(file) else None


def questions_asked(run: Path) -> str:
    """Return 16 hex digits of the questions that a run answered. Another command can change them in the same folder.

    Raises:
        DataError: the run's predictions are not readable.
    """
    return fs.ids_digest(question_ids(run))


def sweep_name(frozen: Sequence[str]) -> str:
    """Return 8 hex digits of the cells' configurations."""
    return fs.text_digest("\n".join(frozen), 8)


def in_use(path: Path) -> bool:
    """Return whether a process works on this sweep."""
    return fs.is_locked(path / ".lock")


def cell_file(path: Path, number: int, suffix: str) -> Path:
    return path / "cells" / f"{number:03}.{suffix}"


def _missing(file: Path) -> str:
    return f"no such file, so {file.parent} is not the folder of a sweep; give outputs/sweeps/NAME"
