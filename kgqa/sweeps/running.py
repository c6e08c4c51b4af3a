"""Cells run one after the other in this process; what each says goes into its log."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TextIO

from kgqa.artifacts.metrics import Metrics
from kgqa.artifacts.stage import StageManifest
from kgqa.artifacts.sweep import CellState, cell_file, questions_asked, sweep_name
from kgqa.artifacts.verification import STAGE, VerificationOutcome
from kgqa.config.files import format_yaml
from kgqa.errors import BudgetSpent, ConfigError, KgqaError, StorageError
from kgqa.experiment.run.checking import check
from kgqa.experiment.run.executing import execute
from kgqa.experiment.run.finished import find_finished_run
from kgqa.experiment.session.budget import Budget, limited
from kgqa.experiment.session.engines import Pool
from kgqa.experiment.session.session import Session
from kgqa.report.sweep_writing import write_sweep_report
from kgqa.runtime.costs import NOTHING
from kgqa.runtime.display import Display, PlainLines, log_lines
from kgqa.runtime.sweep_folder import SweepFolder, keep_state
from kgqa.runtime.work_log import log_event
from kgqa.sweeps.cells import Cell, CellResult, Status, adjacent, folder_in, list_plan
from kgqa.training.verify.verifying import load_verification, verify
from kgqa.types import Json
from kgqa.util.fs import OUT_ELSEWHERE, create_private, explain_storage_errors, outputs
from kgqa.util.redaction import redact

Ended = Callable[[CellResult], None]


@dataclass(frozen=True)
class Swept:
    """A sweep that has ended, with its report in its folder."""

    folder: Path
    results: list[CellResult]
    untried: int = 0  # cells that a search could no longer pay for

    @property
    def whole(self) -> bool:
        """Return whether every cell was run to its end."""
        counts = Counter(result.status for result in self.results)
        return not (self.untried or counts["failed"] or counts["not run"])


def open_sweep(
    cells: Sequence[Cell],
    command: Sequence[str],
    axes: Mapping[str, Sequence[Json]],
    name: str | None,
    search: str | None = None,
) -> SweepFolder:
    """Return claim `outputs/sweeps/NAME` for these cells; without a name it is a hash of them. search: see
    `listed_plan`.

    Raises:
        ConfigError: two cells would write one run's folder, or the folder is another sweep's or in use.
        DataError: the folder is of another version of kgqa.
    """
    if name is not None and (not name or Path(name).name != name or name.startswith(".")):
        raise ConfigError(f"sweep.name={name}: must be a plain folder name, without slashes or a leading dot")
    plan, frozen = list_plan(cells, command, axes, search), freeze_texts(cells)
    return SweepFolder(outputs() / "sweeps" / (name or sweep_name(frozen)), plan, frozen)


def freeze_texts(cells: Sequence[Cell]) -> list[str]:
    return [format_yaml(cell.experiment.config) for cell in cells]


def write_reports(sweep: Path) -> None:
    for form in ("md", "html"):
        write_sweep_report(sweep, form)


def run_cells(
    cells: Sequence[Cell], folder: SweepFolder, *, ended: Ended | None = None, budget: Budget | None = None
) -> list[CellResult]:
    """Run them one after the other; results in the order given. `ended` is told of each, but of those not run.

    Cells with the same models are run next to each other and share them loaded. A finished cell is skipped, a failed
    one stops no other. A spent budget leaves the rest not run.
    """
    results: dict[int, CellResult] = {}
    for group in adjacent(cells):
        with closing(Pool()) as pool:
            allowance = budget.left() if budget else None
            for cell in group:
                if budget and budget.spent():
                    results[cell.number] = _not_run(cell, budget)
                    _keep(folder.path, results[cell.number])
                    continue
                result = results[cell.number] = run_cell(cell, folder.path, pool, allowance)
                if budget:
                    budget.pay(result.paid)
                    log_event("budget", budget.so_far())
                if budget and result.status == "not run":
                    budget.exhausted = True
                if ended:
                    ended(result)
    return [results[cell.number] for cell in cells]


def run_cell(cell: Cell, sweep: Path, pool: Pool, allowance: Budget | None = None) -> CellResult:
    """Run one cell in this process, keep in the sweep's folder how it ended, and what it said in its log."""
    started = time.monotonic()
    begun, run = None, None
    log = cell_file(sweep, cell.number, "log")
    try:
        # a copy: what a run reads goes when it ends, for cells are many and data sets large
        experiment = replace(cell.experiment, config=limited(cell.experiment.config, allowance))
        with _display(log) as display, log_lines(display), Session(experiment, pool) as session:
            begun, run = session, folder_in(session)
            _keep(sweep, CellResult(cell, "running", run, None, 0.0, None))
            how = _before(session) or _now(session, display, allowance)
    except BudgetSpent as spent:
        how = _How("not run", error=_one_line(spent))
    except KgqaError as failure:
        how = _How("failed", error=_one_line(failure))
    except Exception as failure:  # noqa: BLE001 - a defect, ours or of code that was added, stops no other cell
        with suppress(OSError, StorageError), _open(log) as stream:
            stream.write(redact(traceback.format_exc()))
        how = _How("failed", error=f"{type(failure).__name__}: {_one_line(failure)}; its traceback is in {log}")
    paid, seconds = begun.spent() if begun else NOTHING, round(time.monotonic() - started, 1)
    result = CellResult(cell, how.status, run, how.metrics, seconds, how.error, paid, how.outcome)
    _keep(sweep, result)
    return result


class _How(NamedTuple):
    """The status of a finished cell, and its metrics."""

    status: Status
    metrics: Metrics | None = None
    outcome: VerificationOutcome | None = None
    error: str | None = None


def _before(session: Session) -> _How | None:
    """Return None if it has not ended yet with this configuration and these questions."""
    if session.experiment.verifies:
        outcome = load_verification(session)
        return None if outcome is None else _How("skipped", outcome=outcome)
    metrics = find_finished_run(session)
    return None if metrics is None else _How("skipped", metrics)


def _now(session: Session, display: Display, allowance: Budget | None) -> _How:
    if session.experiment.verifies:
        verified = verify(session, display, allowance)
        metrics, outcome, failure = None, verified.outcome, verified.failure
    else:
        check(session)
        executed = execute(session, display)
        metrics, outcome, failure = executed.metrics, None, executed.failure
    return _How("done" if failure is None else "failed", metrics, outcome, failure and " ".join(failure.split()))


def skip_finished(cells: Sequence[Cell], sweep: Path) -> dict[int, CellResult]:
    """Return, by number, the results of cells that are already finished."""
    skipped = {}
    for cell in cells:
        try:
            with Session(replace(cell.experiment)) as session:  # a copy, as in `run_cell`
                how, run = _before(session), folder_in(session)
        except KgqaError:
            continue  # running it tells
        if how is not None:
            skipped[cell.number] = CellResult(cell, "skipped", run, how.metrics, 0.0, None, outcome=how.outcome)
            _keep(sweep, skipped[cell.number])
    return skipped


def result_of(cell: Cell, sweep: Path) -> CellResult:
    """Return how a cell ended that another process ran."""
    state = CellState.read(sweep, cell.number)
    if state is None or state.status == "running":
        why = f"its process ended before it; see {cell_file(sweep, cell.number, 'log')}"
        result = CellResult(cell, "not run", None, None, 0.0, why)
        _keep(sweep, result)
        return result
    run = Path(state.run) if state.run else None
    metrics, outcome = None, None
    if run and state.status == "done":
        verifies = cell.experiment.verifies
        metrics = None if verifies else Metrics.read(run)
        outcome = StageManifest.read(run, STAGE).read_outcome(VerificationOutcome, run) if verifies else None
    return CellResult(cell, state.status, run, metrics, state.seconds, state.error, outcome=outcome)


def _not_run(cell: Cell, budget: Budget) -> CellResult:
    return CellResult(cell, "not run", None, None, 0.0, f"the budget is spent: {budget.so_far()}")


def _keep(sweep: Path, result: CellResult) -> None:
    """A skipped cell is a done one: a sweep that was interrupted ends with the same folder as one that was not."""
    status = "done" if result.status == "skipped" else result.status
    run = str(result.run) if result.run else None
    questions = questions_asked(result.run) if status == "done" and result.run and result.metrics else None
    state = CellState(status=status, run=run, seconds=result.seconds, error=result.error, asked=questions)
    keep_state(sweep, result.cell.number, state)


def _one_line(error: Exception) -> str:
    return " ".join(redact(error).split())


@contextmanager
def _display(log: Path) -> Iterator[PlainLines]:
    """Yield beside other cells, what a cell says would be noise."""
    stream = _open(log)
    try:
        yield _CellLog(stream, log)
    finally:
        with explain_storage_errors(log, OUT_ELSEWHERE):
            stream.close()


class _CellLog(PlainLines):
    """A disk that does not take it fails the cell in a line."""

    def __init__(self, stream: TextIO, file: Path) -> None:
        super().__init__(stream)
        self._file = file

    def line(self, text: str, *, alarm: bool = False) -> None:
        with explain_storage_errors(self._file, OUT_ELSEWHERE):
            super().line(text, alarm=alarm)


def _open(log: Path) -> TextIO:
    with explain_storage_errors(log, OUT_ELSEWHERE):
        return create_private(log).open("a", encoding="utf-8", errors="backslashreplace")
