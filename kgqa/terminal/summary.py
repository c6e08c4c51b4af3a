"""What a run ends with: its scores, what it cost, and what is to be looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from kgqa.artefacts.metrics import Metrics
from kgqa.artefacts.run import MADE_UP, NAMED, SCRIPTED
from kgqa.report.summary import summary_rows
from kgqa.terminal.console import Terminal


def show_summary(choices: Mapping[str, str], metrics: Metrics, errors: Sequence[str], terminal: Terminal) -> None:
    """Scores in percent with 95 % bootstrap intervals, then what it cost."""
    title = " · ".join(choices[group] for group in NAMED if group in choices)
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    for label, value in summary_rows(metrics):
        table.add_row(label, value)
    terminal.show(table)
    if choices.get("engine") == SCRIPTED:
        terminal.line(MADE_UP, alarm=True)
    if metrics.retrieval and metrics.retrieval.alarm:
        terminal.line(f"alarm: {metrics.retrieval.alarm}", alarm=True)
    for warning in metrics.judge.warnings if metrics.judge else ():
        terminal.line(f"warning: {warning}", alarm=True)
    for error in errors:
        terminal.line(f"failed: {error}", alarm=True)
