"""Run the cells of a sweep one after the other in this process, with their states and logs in the sweep's folder."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from kgqa.artifacts.run import SWEEP, FinishedRun
from kgqa.artifacts.sweep import Cell, CellState, Sweep, cell_file, sweep_name
from kgqa.config.building import check_value
from kgqa.config.files import flatten, load_yaml
from kgqa.config.overrides import describe_changes
from kgqa.config.run_keys import FolderName
from kgqa.config.settings import list_reported_settings
from kgqa.errors import BudgetSpent, ConfigError, DataError, KgqaError, ServerLost, StorageError
from kgqa.experiment.engines import Pool
from kgqa.experiment.run import execute
from kgqa.experiment.session import Session
from kgqa.report.changes import name_changes
from kgqa.report.sweeps import SweepReport
from kgqa.runtime.costs import Budget, Spent
from kgqa.runtime.display import QUIET, Display, PlainLines, Stage, log_lines
from kgqa.sweeps.cells import differing_settings, experiment_of
from kgqa.util.fs import (
    OUT_ELSEWHERE,
    explain_storage_errors,
    has_content,
    lock_file,
    open_to_append,
    replace_file,
)
from kgqa.util.places import outputs
from kgqa.util.redaction import redact

# cells and settings in a message
_MOST_NAMED = 5


def sweep_path(name: str | None, cells: Sequence[Cell], key: str = "sweep.name") -> Path:
    """Return `outputs/sweeps/NAME`. The name is a hash of the cells if it is None.

    Raises ConfigError if `key`, which sets the name, has another value than a folder's name.
    """
    name = (
        sweep_name([cell.frozen for cell in cells])
        if name is None
        else check_value(key, name, FolderName)
    )
    return outputs() / "sweeps" / str(name)


@contextmanager
def open_sweep(sweep: Sweep, cells: Sequence[Cell], key: str = "sweep.name") -> Iterator[None]:
    """Lock the folder of a sweep and store the cells in it. `key`: the key that chooses the folder, for messages.

    Raises:
        ConfigError: the folder holds another sweep, or another process works on it.
        DataError: it is of another version of kgqa, or damaged.
        StorageError: it cannot be created or written.
    """
    path = sweep.path

    def refuse_second_process() -> None:
        raise ConfigError(
            f"{path}: another kgqa process is working on this sweep. Wait for it, or set {key}="
        )

    with lock_file(path / ".lock", refuse_second_process, OUT_ELSEWHERE):
        before = Sweep.read(path) if has_content(path / SWEEP) else None
        if before and (differs := _difference(before, sweep, cells)):
            raise ConfigError(
                f"{path} contains another sweep: {differs}. Set another {key}=, which uses the stored replies too, "
                "or remove the folder."
            )
        add_cells(sweep, cells)
        yield


def add_cells(sweep: Sweep, cells: Sequence[Cell]) -> None:
    """Store more cells. Cells that are not done run again."""
    for cell in cells:
        if (state := CellState.read(sweep.path, cell.number)) and state.status != "done":
            cell_file(sweep.path, cell.number, "json").unlink()
        replace_file(cell_file(sweep.path, cell.number, "yaml"), cell.frozen)
    sweep.cells += cells
    sweep.differing = differing_settings(sweep.cells)
    sweep.write()


def _difference(before: Sweep, sweep: Sweep, cells: Sequence[Cell]) -> str:
    if sweep.search or before.search:  # a search starts without cells
        return "" if before.search == sweep.search else "another search"
    if len(before.cells) != len(cells):
        return f"{len(before.cells)} cells, not {len(cells)}"
    others = {
        str(cell.number): texts for cell in cells if (texts := _list_changes(cell, sweep.path))
    }
    if not others:
        return ""
    changes = dict.fromkeys(change for each in others.values() for change in each)
    numbers, listed = (_shorten(list(each)) for each in (others, changes))
    return f"another configuration in cell {numbers}: {listed}"


def _shorten(texts: Sequence[str]) -> str:
    return ", ".join(texts[:_MOST_NAMED]) + (" …" if len(texts) > _MOST_NAMED else "")


def _list_changes(cell: Cell, sweep: Path) -> list[str]:
    """Return the settings that can change answers and differ from those in the stored configuration of a cell.

    Raises DataError: its file is damaged.
    """
    file = cell_file(sweep, cell.number, "yaml")
    if not file.is_file() or file.read_bytes() == cell.frozen.encode():
        return []
    remedy = f"Remove {sweep}, then run the same command again"
    stored = load_yaml(file, remedy)
    if not isinstance(stored, dict):
        raise DataError(f"{file}: not the configuration of a cell. {remedy}")
    old, new = (flatten(list_reported_settings(each)) for each in (stored, cell.config))
    return describe_changes(old, new)


def write_reports(sweep: Sweep) -> SweepReport:
    """Write the report of a sweep that runs here."""
    report = SweepReport(sweep, sweep.path)
    for form in ("md", "html"):
        report.write(form)
    return report


def run_cell(
    cell: Cell,
    sweep: Path,
    pool: Pool,
    allowance: Budget | None = None,
    sweep_display: Display = QUIET,
) -> Spent:
    """Run one cell in this process, with its state and its log in the sweep's folder, and return what it paid.

    Errors of a cell are not raised. sweep_display: shows the stages of the cell while they run, and how it ended unless
    it was finished before.

    Raises:
        ServerLost: a server does not answer. The other cells would wait for it, too.
    """
    started, log = time.monotonic(), cell_file(sweep, cell.number, "log")
    session, failure = None, None
    before = CellState.read(sweep, cell.number)
    try:
        experiment = experiment_of(cell, allowance)
        with (
            closing(_CellLog(log, sweep_display)) as display,
            log_lines(display),
            Session(experiment, pool) as session,
        ):
            cell.run, cell.status = session.folder, "running"
            cell.write_state(sweep)
            executed = execute(session, display)
        if executed.judge_warning:
            sweep_display.line(f"cell {cell.number}: {executed.judge_warning}", alarm=True)
        cell.finished, cell.error = (
            executed.run,
            executed.failure and " ".join(executed.failure.split()),
        )
        cell.status = (
            "failed" if executed.failure else "skipped" if executed.was_finished else "done"
        )
    except KgqaError as error:
        failure = error if isinstance(error, ServerLost) else None
        cell.status, cell.error = (
            "not run" if isinstance(error, BudgetSpent) else "failed",
            _one_line(error),
        )
    except Exception as error:  # noqa: BLE001 - a defect of one cell does not stop the others
        with suppress(StorageError), closing(_CellLog(log)) as display:
            for line in traceback.format_exc().splitlines():
                display.line(redact(line))
        cell.status, cell.error = (
            "failed",
            f"{type(error).__name__}: {_one_line(error)}. Its traceback is in {log}",
        )
    cell.seconds = round(time.monotonic() - started, 1)
    cell.write_state(sweep)
    if failure:
        raise failure
    if cell.finished and before and before.run and before.run != cell.finished.folder:
        sweep_display.line(_explain_new_run(cell.finished, before.run, cell.number))
    if cell.status != "skipped":
        sweep_display.line(cell.end)
    return session.spent if session else Spent()


def _explain_new_run(run: FinishedRun, earlier: Path, number: int) -> str:
    """Return a line on a cell that has another run than before, although its settings are equal."""
    _, changes = name_changes([earlier, run.folder], run.choices["method"])
    return (
        f"cell {number} has a new run with {changes or 'other code or data'}. The earlier run is {earlier}. "
        "To keep both in sweeps, set another sweep.name= after a change"
    )


def _one_line(error: Exception) -> str:
    return " ".join(redact(error).split())


class _CellLog(PlainLines):
    """Lines in a cell's log, and its stages in the sweep's display. A full disk is an error of the cell."""

    def __init__(self, file: Path, sweep_display: Display = QUIET) -> None:
        self._file, self._sweep_display = file, sweep_display
        with explain_storage_errors(file, OUT_ELSEWHERE):
            super().__init__(open_to_append(file))

    def line(self, text: str, *, alarm: bool = False) -> None:
        with explain_storage_errors(self._file, OUT_ELSEWHERE):
            super().line(text, alarm=alarm)

    @contextmanager
    def watching(self, stage: Stage) -> Iterator[None]:
        stage.title = f"cell {int(self._file.stem)}: {stage.title}"
        with self._sweep_display.watching(stage), super().watching(stage):
            yield

    def close(self) -> None:
        with explain_storage_errors(self._file, OUT_ELSEWHERE):
            self._stream.close()
