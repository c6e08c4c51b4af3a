"""The runs and sweeps of a folder as rows of one table. A row is read again when its files change."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kgqa.artifacts.metrics import METRICS, Metrics
from kgqa.artifacts.run import SETTINGS, SWEEP, Chosen, RunEntry, list_runs, list_sweeps
from kgqa.artifacts.schema import read
from kgqa.artifacts.sweep import SweepPlan
from kgqa.errors import DataError
from kgqa.report.columns import Measured, columns
from kgqa.runtime.monitor import read_heartbeats
from kgqa.util.fs import outputs
from kgqa.util.text import escape_control

FIELDS = ("name", "dataset", "method", "model", "status", "questions", "written")  # columns without figures


@dataclass(frozen=True)
class Row:
    """A run or a sweep. `key`: its path below the folder.

    axes: the keys that a sweep varies. runs: the keys of its finished cells.
    """

    key: str
    folder: Path
    kind: str  # "run" or "sweep"
    name: str
    status: str  # "running", "done" or "not finished"
    written: float
    dataset: str = ""
    method: str = ""
    model: str = ""
    questions: int | None = None
    figures: Mapping[str, Measured] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    cells: str = ""
    axes: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    trouble: str = ""

    def value(self, column: str) -> float | str | None:
        """Return the value of a field or figure, or None."""
        if column in self.figures:
            return self.figures[column].value
        value: float | str | None = getattr(self, column) if column in FIELDS else None
        return value


class Folder:
    """`outputs/` or another folder of runs. Several threads can use it."""

    def __init__(self, root: Path) -> None:
        """Open a folder. Raises DataError: it does not exist."""
        if not root.is_dir():
            raise DataError(f"{root}: no such folder. Name an outputs/ folder, e.g. kgqa view outputs")
        self.root = root
        self._lock = threading.Lock()
        self._cache: dict[str, tuple[tuple[int, ...], Row]] = {}

    def list_runs(self) -> list[RunEntry]:
        """Return runs and sweeps, newest first."""
        return sorted([*list_runs(self.root), *list_sweeps(self.root)], key=lambda entry: -entry.written)

    def group_runs(self, listed: Sequence[RunEntry]) -> list[RunEntry]:
        """Return the same with the cells of each sweep below it. A cell of several sweeps is below the first."""
        cells = {self._key(each.folder): each for each in listed if not _is_sweep(each)}
        groups = {}
        for sweep in self.rows([each for each in listed if _is_sweep(each)]):
            groups[sweep.key] = [cells.pop(key) for key in sweep.runs if key in cells]
        tops = [each for each in listed if _is_sweep(each) or self._key(each.folder) in cells]
        return [entry for top in tops for entry in (top, *groups.get(self._key(top.folder), ()))]

    def rows(self, listed: Sequence[RunEntry]) -> list[Row]:
        """Return one row per run or sweep. A damaged one has its error in `trouble`."""
        working = {self._path(beat.folder) for beat in read_heartbeats(self.root) if beat.is_running}
        return [self._row(entry, bool(working) and entry.folder.resolve() in working) for entry in listed]

    def run(self, key: str) -> Row:
        """Return a finished run. Raises DataError: there is no such run, or it is a sweep or not finished."""
        for entry in self.list_runs():
            if self._key(entry.folder) == key:
                (row,) = self.rows([entry])
                if row.kind == "sweep" or not entry.ended:
                    raise DataError(f"{key}: a sweep or a run that is not finished. Choose a finished run")
                return row
        raise DataError(f"{key}: no run in {self.root}. It may have been removed: see kgqa runs")

    def _key(self, folder: Path) -> str:
        """Return the name of a run in addresses, with escapes for bytes that are no text."""
        return escape_control(folder.relative_to(self.root).as_posix())

    def _row(self, entry: RunEntry, working: bool) -> Row:
        key, sweep = self._key(entry.folder), _is_sweep(entry)
        status = "running" if working else "done" if entry.ended else "not finished"
        names = (SWEEP, "cells", "report.html") if sweep else (METRICS, SETTINGS)
        stamp = (working, entry.ended, *(modification_time(entry.folder / name) for name in names))
        with self._lock:
            known = self._cache.get(key)
        if known is None or known[0] != stamp:
            known = (stamp, self._read_sweep(entry, key, status) if sweep else _read_run(entry, key, status))
            with self._lock:
                self._cache[key] = known
        return known[1]

    def _read_sweep(self, entry: RunEntry, key: str, status: str) -> Row:
        row = Row(key, entry.folder, "sweep", escape_control(entry.parts[-1]), status, entry.written)
        try:
            plan = SweepPlan.read(entry.folder)
            states = [cell.state for cell in plan.cells]
        except DataError as error:
            return replace(row, trouble=str(error))
        done = [self._path(state.run) for state in states if state and state.status == "done" and state.run]
        root = self.root.resolve()
        runs = tuple(escape_control(run.relative_to(root).as_posix()) for run in done if run.is_relative_to(root))
        if status == "done" and len(done) < len(states):  # it has a report, though not of all cells
            row = replace(row, status="not finished")
        return replace(row, cells=f"{len(done)} of {len(states)} cells", axes=tuple(plan.axes), runs=runs)

    def _path(self, saved: str) -> Path:
        """Return the folder that a saved path names. Paths below outputs/ are below this folder."""
        path = Path(saved)
        return (self.root.joinpath(*path.parts[1:]) if path.parts[:1] == (outputs().name,) else path).resolve()


def _is_sweep(entry: RunEntry) -> bool:
    return entry.parts[0] == "sweeps" and len(entry.parts) == 2


def _read_run(entry: RunEntry, key: str, status: str) -> Row:
    dataset, method, model, name = map(escape_control, entry.parts)
    row = Row(key, entry.folder, "run", name, status, entry.written, dataset, method, model)
    if not entry.ended:
        return row
    try:
        metrics, chosen = Metrics.read(entry.folder), read(Chosen, entry.folder / SETTINGS)
    except DataError as error:
        return replace(row, trouble=str(error))
    return replace(
        row,
        questions=metrics.questions,
        figures={column.label: figure for column in columns() if (figure := column.measure(metrics))},
        settings={**chosen.choices, **{setting: value for setting, value, _ in chosen.settings}},
    )


def modification_time(file: Path) -> int:
    """Return when a file was last written, in nanoseconds, or 0 if it does not exist."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0
