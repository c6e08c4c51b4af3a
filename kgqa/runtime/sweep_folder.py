"""A sweep's folder: which cells it has, the configuration each was frozen with, and what became of each.

`sweep.json` names the cells; `cells/003.yaml` is a frozen configuration, `cells/003.json` how that cell ended and
`cells/003.log` what it said. What a cell answered lies in its run's own folder, where other sweeps find it again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from kgqa.errors import ConfigError, DataError, KgqaError
from kgqa.runtime.folder import json_text, replace_file, storing
from kgqa.types import Json

SWEEP = "sweep.json"
FORMAT = 1  # of the folder; one with another number is refused


class SweepFolder:
    """Opening claims the folder for these cells, and against other processes until it is closed.

    frozen: the cells' configurations as text, in the order of `plan["cells"]`. growing: cells are added one by one, so
    that a sweep begins with none; the folder may hold some of them from before.

    Raises:
        ConfigError: the folder holds another sweep, or another process is working on it.
        DataError: it is of another version of kgqa, or damaged.
        StorageError: it cannot be created or written.
    """

    def __init__(self, path: Path, plan: Mapping[str, Json], frozen: Sequence[str], *, growing: bool = False) -> None:
        self.path = path
        with storing(path):
            (path / "cells").mkdir(parents=True, exist_ok=True)
            self._lock = (path / ".lock").open("a+")
        try:
            self._claim()
            if (path / SWEEP).is_file():
                before = [cell["frozen"] for cell in read_plan(path)["cells"]]
                if not growing:
                    _refuse_another(path, before, [_digest(text) for text in frozen])
            self.grow(plan, frozen)
        except KgqaError:
            self._lock.close()
            raise

    def __enter__(self) -> SweepFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._lock.close()

    def grow(self, plan: Mapping[str, Json], frozen: Sequence[str]) -> None:
        """Keep these cells in place of those so far."""
        for number, text in enumerate(frozen):
            if (ended := read_result(self.path, number)) and ended["status"] != "done":
                cell_file(self.path, number, "json").unlink()  # it is tried again
            replace_file(cell_file(self.path, number, "yaml"), text)
        listed = zip(plan["cells"], frozen, strict=True)
        cells = [{**cell, "frozen": _digest(text)} for cell, text in listed]
        replace_file(self.path / SWEEP, json_text({"format": FORMAT, **plan, "cells": cells}))

    def _claim(self) -> None:
        with storing(self.path):
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ConfigError(
                    f"{self.path}: another kgqa process is working on this sweep; wait for it or give sweep.name="
                ) from error


def sweep_name(frozen: Sequence[str]) -> str:
    """8 hex digits of the cells' configurations."""
    return _digest("\n".join(frozen))[:8]


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
    """How far a cell is: `status` (running, done, failed, not run), `run`, `error`, `seconds`; None: not begun."""
    file = cell_file(path, number, "json")
    return _read(file) if file.is_file() else None


def keep_result(path: Path, number: int, result: Mapping[str, Json]) -> None:
    replace_file(cell_file(path, number, "json"), json_text(result))


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


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


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
