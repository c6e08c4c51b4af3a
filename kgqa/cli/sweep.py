"""`kgqa run -m`: sweeps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from kgqa.artifacts.run import MADE_UP
from kgqa.cli.dry_run import show_estimates
from kgqa.cli.tables import Cells, style_text
from kgqa.cli.terminal import Terminal
from kgqa.experiment.compare import MAX_RUNS
from kgqa.report.columns import COSTS, SEPARATOR, columns
from kgqa.report.section import MarkedCell, Section, Value
from kgqa.report.sweeps import FEWER_NOTE, NOTE, REPEATS_NOTE, SweepReport, join_numbers
from kgqa.runtime.monitor import command_line
from kgqa.sweeps.grid import SweepRequest, run_search, run_sweep

OTHER_QUESTIONS = (
    "Tables are separate because the questions differ. With sample=, each seed= samples other questions. "
    "repeats=3 runs the same questions with several seeds: docs/REPEATS.md"
)
REPEATED = "a row with several cells: the mean of its runs"
# "skipped" reads like "not run"
SHOWN = {"skipped": "done before"}
MARKS = {"best": "bold", "second": "underline"}  # styles
MEANINGS = {"best": "bold: best", "second": "underlined: second"}
# omitted first in a narrow terminal
COSTS_SHOWN = [column.brief for column in COSTS.values() if column.brief]


def sweep(overrides: Sequence[str], terminal: Terminal) -> int:
    """Run a sweep. Return 2 if a cell failed or was not run. Its folder is the last line."""
    request = SweepRequest.of(overrides)
    if request.sweeper == "optuna":
        return _show_sweep(run_search(request, terminal), terminal)
    if request.dry_run:
        return show_estimates(request.cells, terminal)
    return _show_sweep(run_sweep(request, terminal), terminal)


def _show_sweep(report: SweepReport, terminal: Terminal) -> int:
    sweep = report.sweep
    # those of all tables are below the last one
    counts = Counter(note for table in report.tables for note in dict.fromkeys(table.text))
    names, values = set[str](), list[Value]()
    for table in report.tables:
        labels = {column.title: column.brief for column in columns()}
        header = [labels.get(name, name.rpartition(".")[2]) for name in table.header]
        rows = [
            [cell for name, cell in zip(header, row, strict=True) if name] for row in table.rows
        ]
        terminal.line(table.title, style="bold")
        own = [name for name in header if name]
        present = set(
            terminal.table(
                own,
                map(_show_row, rows),
                optional=sum(name in COSTS_SHOWN for name in header),
                all_columns="report.html",
            )
        )
        names |= present
        values += [
            cell for row in rows for name, cell in zip(own, row, strict=True) if name in present
        ]
        _show_notes((note for note in table.text if counts[note] < len(report.tables)), terminal)
    if report.tables:
        for legend in _legends(report.tables, names):
            terminal.line(legend, style="dim")
    _show_notes((note for note in counts if counts[note] == len(report.tables)), terminal)
    if any(map(_has_fewer, values)):
        terminal.line(FEWER_NOTE, style="dim")
    # without the questions: the dataset and the profile
    kinds = {cell.key[:2] for cell in report.done}
    if "seed" in sweep.axes and len(report.tables) > len(kinds):
        terminal.line(OTHER_QUESTIONS)
    if any(row.is_repeated for _, _, rows in report.groups for row in rows):
        terminal.line(REPEATED, style="dim")
    terminal.lines(f"note: {text}" for text in report.note_constant())
    terminal.lines((f"warning: {text}" for text in report.warnings()), alarm=True)
    if scripted := [each.cell.number for each in report.done if each.run.simulation_note]:
        cells = "" if len(scripted) == len(report.done) else f" (cell {join_numbers(scripted)})"
        terminal.line(f"warning: {MADE_UP}{cells}", alarm=True)
    for number, name, status, why in report.failures():
        terminal.line(f"cell {number} {status}: {name}: {why}", alarm=True)
    states = Counter(SHOWN.get(cell.status, cell.status) for cell in sweep.cells)
    terminal.line(f"cells: {', '.join(f'{count} {status}' for status, count in states.items())}")
    has_results = any(cell.status in ("done", "skipped", "not run") for cell in sweep.cells)
    if has_results and not sweep.is_complete and (command := command_line()):
        after = " Once what failed is corrected, continue" if states["failed"] else " Continue"
        terminal.line(f"finished cells and all replies are saved.{after} with: {command}")
    terminal.end(sweep.path, following=_choose_next(report))
    has_scores = not any(each.metrics.failed_metrics for each in report.done)
    return 0 if sweep.is_complete and has_scores else 2


def _choose_next(report: SweepReport) -> tuple[object, ...]:
    """Return the command that compares the cells, or opens the report if they cannot be compared."""
    path = report.sweep.path
    if not report.done:
        return ()
    count = sum(len(rows) for _, _, rows in report.groups)
    # retrieve_only has no answers
    has_answers = all(each.metrics.score("em").n for each in report.done)
    if has_answers and len(report.groups) == 1 and 2 <= count <= MAX_RUNS:
        return "compare", path
    return "report", path, "--open"


def _legends(tables: Sequence[Section], names: Collection[str]) -> Iterator[str]:
    """Yield the meaning of the marks and the columns that the tables have."""
    cells = [cell for table in tables for row in table.rows for cell in row]
    marked = [cell for cell in cells if isinstance(cell, MarkedCell)]
    marks = {cell.mark for cell in marked}
    texts = [meaning for mark, meaning in MEANINGS.items() if mark in marks]
    if any(cell.worse for cell in marked):
        texts.append("*: significantly worse than the best (paired test, Holm, p < 0.05)")
    if texts:
        yield SEPARATOR.join(texts)
    costs = ", ".join(name for name in COSTS_SHOWN if name in names)
    texts = ["[low, high]: 95 % interval", *([f"{costs}: per answered question"] if costs else [])]
    yield SEPARATOR.join([*texts, "all columns, differences, p: report.html"])


def _show_notes(notes: Iterable[str], terminal: Terminal) -> None:
    for note in notes:
        # the legend replaces two of these, and the last one is only below such a score
        if note not in (NOTE, REPEATS_NOTE, FEWER_NOTE):
            terminal.line(note, style="dim")


def _has_fewer(cell: Value) -> bool:
    """Return whether a cell is a score with its number of questions. It has an interval, other numbers have none."""
    return re.search(r" of [\d,]+ +\[", str(cell)) is not None


def _show_row(row: Sequence[Value]) -> Cells:
    cells = (cell if isinstance(cell, MarkedCell) else MarkedCell(str(cell)) for cell in row)
    return [style_text(cell.brief + "*" * cell.worse, MARKS.get(cell.mark, "")) for cell in cells]
