"""A run's questions in a table: which are right, which are wrong, which failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from kgqa.artifacts.metrics import METRICS
from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.trace import read_trace
from kgqa.cli.terminal.console import Terminal
from kgqa.errors import ConfigError
from kgqa.report.questions import QuestionRow, load_reported_questions, order_ids

LONGEST_ID = 40  # columns
WIDE = 120  # columns from which a question's text has a column of its own
RIGHT, WRONG, FAILED = "right", "wrong", "failed"  # by exact match
_STYLES = {RIGHT: "green", WRONG: "yellow", FAILED: "red", "": ""}


@dataclass(frozen=True)
class Choosing:
    """The filter of a list of questions: the first `limit` with one of `outcomes` (none: any)."""

    outcomes: frozenset[str]
    limit: int


def show_questions(folder: Path, choosing: Choosing, terminal: Terminal) -> None:
    """Show questions in the order of the dataset, or of an unfinished run in the order of their ends.

    Raises:
        ConfigError: outcomes are asked for of a run that has not ended.
        DataError: not a run's folder.
    """
    if not (folder / METRICS).is_file():
        _show_begun(folder, choosing, terminal)
        return
    run = FinishedRun.read(folder)
    rows = {reported.row.id: reported.row for reported in load_reported_questions(run)}
    told = [rows[question_id] for question_id in order_ids(run, rows)]
    chosen = [row for row in told if not choosing.outcomes or _outcome(row) in choosing.outcomes]
    shown, wide = chosen[: choosing.limit], terminal.console.width >= WIDE
    judged = any(row.verdict for row in shown)
    table = _table(["question", "", "F1", *(["judge"] if judged else []), "answer", "gold"], wide=wide)
    table.columns[0].min_width = min(LONGEST_ID, max((len(row.id) for row in shown), default=0))  # it is to be typed
    for row in shown:
        outcome = _outcome(row)
        table.add_row(
            escape(row.id if wide else f"{row.id}\n{row.question}"),
            f"[{_STYLES[outcome]}]{outcome}[/]" if outcome else "",
            "" if row.f1 is None else f"{100 * row.f1:.1f}",
            *([escape(row.verdict or "")] if judged else []),
            escape(f"failed: {row.error}" if row.error else row.answer or ""),
            escape(row.gold[0]),
            *([escape(row.question)] if wide else []),
        )
    if shown:
        terminal.show(table)
    _say_how_many(len(shown), chosen, told, terminal)


def _show_begun(folder: Path, choosing: Choosing, terminal: Terminal) -> None:
    if choosing.outcomes:
        raise ConfigError(f"{folder}: has not ended, so nothing is scored yet; leave --wrong and --failed out")
    wide, count = terminal.console.width >= WIDE, 0
    table = _table(["question", "answer", "gold"], wide=wide)
    for traced in read_trace(folder):
        question, prediction = traced.question, traced.prediction
        count += 1
        if count <= choosing.limit:
            table.add_row(
                escape(question.id if wide else f"{question.id}\n{question.text}"),
                escape(f"failed: {prediction.error}" if prediction.error else prediction.answer or ""),
                escape(question.answers[0]),
                *([escape(question.text)] if wide else []),
            )
    terminal.show(table)
    terminal.line(f"not ended; {count:,} questions so far, in the order in which they ended")


def _table(columns: Sequence[str], *, wide: bool) -> Table:
    """Build the table; `wide` gives the question its own column."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in [*columns, *(["text"] if wide else [])]:
        figures = heading in ("", "F1")
        table.add_column(heading, overflow="fold", no_wrap=figures, justify="right" if heading == "F1" else "left")
    return table


def _outcome(row: QuestionRow) -> str:
    """Return the outcome, or "" if the run has no answers, as with `retrieve_only`."""
    if row.error:
        return FAILED
    return "" if row.em is None else RIGHT if row.em == 1 else WRONG


def _say_how_many(shown: int, chosen: Sequence[QuestionRow], told: Sequence[QuestionRow], terminal: Terminal) -> None:
    outcomes = [_outcome(row) for row in told]
    counts = ", ".join(f"{outcomes.count(each):,} {each}" for each in (RIGHT, WRONG, FAILED) if each in outcomes)
    of = f"{len(told):,} questions" if len(told) != 1 else "1 question"
    terminal.line(": ".join(filter(None, [of, counts])) + (" (by exact match)" if counts else ""))
    if shown < len(chosen):
        terminal.line(f"{shown:,} of {len(chosen):,} shown; all: --limit {len(chosen)}")
