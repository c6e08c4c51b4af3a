"""Output at the end of a run: scores, costs and warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from kgqa.artifacts.metrics import Metrics
from kgqa.artifacts.run import MADE_UP, NAMED, SCRIPTED
from kgqa.cli.terminal.console import Terminal
from kgqa.report.summary import summary_rows


def show_summary(choices: Mapping[str, str], metrics: Metrics, errors: Sequence[str], terminal: Terminal) -> None:
    """Show scores in percent with 95 % bootstrap intervals, then costs."""
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
