"""A sweep's folder: which cells it has, the configuration each was frozen with, and what became of each.

`sweep.json` names the cells; `cells/003.yaml` is a frozen configuration, `cells/003.json` how that cell ended and
`cells/003.log` what it said. What a cell answered lies in its run's own folder, where other sweeps find it again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from kgqa.errors import ConfigError, DataError
from kgqa.runtime.folder import PREDICTIONS
from kgqa.storage import OUT_ELSEWHERE, ids_digest, in_use, json_text, locked, replace_file, text_digest
from kgqa.types import Json

SWEEP = "sweep.json"
FORMAT = 1  # of the folder; one with another number is refused


class SweepFolder:
    """Opening claims the folder for these cells, and against other processes until it is closed.

    frozen: the cells' configurations as text, in the order of `plan["cells"]`. search: what decides which cells a
    search proposes; it adds them one by one, so that it begins with none, and the folder may hold some from before.

    Raises:
        ConfigError: the folder holds another sweep, or another process is working on it.
        DataError: it is of another version of kgqa, or damaged.
        StorageError: it cannot be created or written.
    """

    def __init__(
        self, path: Path, plan: Mapping[str, Json], frozen: Sequence[str], *, search: str | None = None
    ) -> None:
        self.path, self._search, self._kept = path, search, 0
        with ExitStack() as claim:
            claim.enter_context(locked(path / ".lock", self._refuse, OUT_ELSEWHERE))
            if (path / SWEEP).is_file():
                before = read_plan(path)
                if before.get("search") != search:
                    raise ConfigError(f"{path} holds another sweep; give another sweep.name=, or remove the folder")
                if search is None:
                    listed = [cell["frozen"] for cell in before["cells"]]
                    _refuse_another(path, listed, [text_digest(text, 16) for text in frozen])
            self.grow(plan, frozen)
            self._claim = claim.pop_all()

    def __enter__(self) -> SweepFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._claim.close()

    def grow(self, plan: Mapping[str, Json], frozen: Sequence[str]) -> None:
        """Keep these cells, which go on from those kept so far."""
        for number, text in list(enumerate(frozen))[self._kept :]:
            if (ended := read_result(self.path, number)) and ended["status"] != "done":
                cell_file(self.path, number, "json").unlink()  # it is tried again
            replace_file(cell_file(self.path, number, "yaml"), text)
        self._kept = len(frozen)
        listed = zip(plan["cells"], frozen, strict=True)
        cells = [{**cell, "frozen": text_digest(text, 16)} for cell, text in listed]
        search = {} if self._search is None else {"search": self._search}
        replace_file(self.path / SWEEP, json_text({"format": FORMAT, **search, **plan, "cells": cells}))

    @staticmethod
    def in_use(path: Path) -> bool:
        """Whether a process works on this sweep."""
        return in_use(path / ".lock")

    def _refuse(self) -> None:
        raise ConfigError(
            f"{self.path}: another kgqa process is working on this sweep; wait for it or give sweep.name="
        )


def sweep_name(frozen: Sequence[str]) -> str:
    """8 hex digits of the cells' configurations."""
    return text_digest("\n".join(frozen), 8)


def read_plan(path: Path) -> dict[str, Any]:
    """What `sweep.json` says: `command`, `axes` and the `cells` in order.

    Raises:
        DataError: not a sweep's folder, one of another version, or a damaged one.
    """
    plan = _read(path / SWEEP)
    if plan.get("format") != FORMAT:
        raise DataError(
            f"{path / SWEEP}: a sweep of format {plan.get('format')}, this version of kgqa writes format {FORMAT}; "
            "give another sweep.name=, or remove the folder (its runs and replies stay)"
        )
    if not isinstance(plan.get("cells"), list) or not {"command", "axes"} <= plan.keys():
        raise DataError(f"{path / SWEEP}: cells, command or axes are missing; run the sweep's command again")
    return plan


def read_result(path: Path, number: int) -> dict[str, Any] | None:
    """How far a cell is: `status` (running, done, failed, not run), `run`, `error`, `seconds`; None: not begun.

    Of a done one also `asked`, of the questions its run answered then.
    """
    file = cell_file(path, number, "json")
    return _read(file) if file.is_file() else None


def keep_result(path: Path, number: int, result: Mapping[str, Json]) -> None:
    replace_file(cell_file(path, number, "json"), json_text(result))


def questions_asked(run: Path) -> str:
    """16 hex digits of what a run answered: its folder's name does not tell, so another command may change it.

    Raises:
        DataError: the run's predictions are not readable.
    """
    file = run / PREDICTIONS
    try:
        with file.open(encoding="utf-8") as lines:
            return ids_digest(json.loads(line)["question_id"] for line in lines)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file}: not readable ({error}); run the sweep's command again") from error


def cell_file(path: Path, number: int, suffix: str) -> Path:
    return path / "cells" / f"{number:03}.{suffix}"


def _refuse_another(path: Path, before: Sequence[str], now: Sequence[str]) -> None:
    if before == now:
        return
    if len(before) != len(now):
        differs = f"{len(before)} cells, not {len(now)}"
    else:
        others = [str(number) for number, (old, new) in enumerate(zip(before, now, strict=True)) if old != new]
        differs = f"another configuration in cell {', '.join(others[:5])}{' …' if len(others) > 5 else ''}"
    raise ConfigError(f"{path} holds another sweep: {differs}; give another sweep.name=, or remove the folder")


def _read(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(
            f"{file.parent}: not the folder of a sweep (no {file.name}); give outputs/sweeps/NAME"
        ) from error
    except ValueError as error:
        raise DataError(f"{file}: not readable ({error}); remove it and run the sweep's command again") from error
    if not isinstance(value, dict):
        raise DataError(f"{file}: not an object; remove it and run the sweep's command again")
    return value
