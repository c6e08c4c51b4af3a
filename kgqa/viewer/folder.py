"""The runs and sweeps of a folder as rows of one table. A run is read again when its files change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from kgqa.artifacts.metrics import Metrics
from kgqa.artifacts.run import SETTINGS, Chosen, RunEntry, list_runs, list_sweeps
from kgqa.artifacts.schema import read
from kgqa.artifacts.sweep import SweepPlan
from kgqa.errors import DataError
from kgqa.report.columns import Measured, columns
from kgqa.runtime.monitor import read_heartbeats
from kgqa.util.fs import outputs

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


def read_rows(root: Path) -> list[Row]:
    """Return the runs and sweeps below a folder, newest first. A damaged one has its error in `trouble`."""
    rows = [*map(_read_run, list_runs(root)), *(_read_sweep(entry, root) for entry in list_sweeps(root))]
    working = {_locate(beat.folder, root) for beat in read_heartbeats(root) if beat.is_running}
    if working:
        rows = [replace(row, status="running") if row.folder.resolve() in working else row for row in rows]
    return sorted(rows, key=lambda row: -row.written)


def find_row(root: Path, key: str) -> Row:
    """Return a finished run. Raises DataError: there is no such run, or it is a sweep or not finished."""
    row = next((row for row in read_rows(root) if row.key == key), None)
    if row is None:
        raise DataError(f"{key}: no run in {root}. It may have been removed: see kgqa runs")
    if row.questions is None:
        raise DataError(row.trouble or f"{key}: a sweep or a run that is not finished. Choose a finished run")
    return row


def group_cells(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with the cells of each sweep below it. A cell of several sweeps is below the first."""
    cells = {row.key: row for row in rows if row.kind == "run"}
    groups = {row.key: [cells.pop(key) for key in row.runs if key in cells] for row in rows}
    tops = [row for row in rows if row.kind == "sweep" or row.key in cells]
    return [row for top in tops for row in (top, *groups[top.key])]


@lru_cache(maxsize=10_000)  # an entry has the time at which metrics.json was written
def _read_run(entry: RunEntry) -> Row:
    dataset, method, model, name = entry.parts
    status = "done" if entry.ended else "not finished"
    row = Row(entry.name, entry.folder, "run", name, status, entry.written, dataset, method, model)
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


def _read_sweep(entry: RunEntry, root: Path) -> Row:
    row = Row(entry.name, entry.folder, "sweep", entry.parts[-1], "not finished", entry.written)
    try:
        plan = SweepPlan.read(entry.folder)
    except DataError as error:
        return replace(row, trouble=str(error))
    states = [cell.state for cell in plan.cells]
    done = [_locate(state.run, root) for state in states if state and state.status == "done" and state.run]
    base = root.resolve()
    return replace(
        row,
        status="done" if entry.ended and len(done) == len(states) else "not finished",
        cells=f"{len(done)} of {len(states)} cells",
        axes=tuple(plan.axes),
        runs=tuple(run.relative_to(base).as_posix() for run in done if run.is_relative_to(base)),
    )


def _locate(saved: str, root: Path) -> Path:
    """Return the folder that a saved path names. Paths below outputs/ are below the root."""
    path = Path(saved)
    return (root.joinpath(*path.parts[1:]) if path.parts[:1] == (outputs().name,) else path).resolve()
