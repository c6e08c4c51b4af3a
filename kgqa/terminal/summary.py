"""What a run ends with: its scores, what it cost, and what is to be looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from kgqa.report.summary import NAMED, summary_rows
from kgqa.terminal.console import Terminal
from kgqa.types import Json


def show_summary(
    choices: Mapping[str, str], metrics: Mapping[str, Json], errors: Sequence[str], terminal: Terminal
) -> None:
    """Scores in percent with 95 % bootstrap intervals, then what it cost."""
    title = " · ".join(choices[group] for group in NAMED if group in choices)
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    for label, value in summary_rows(metrics):
        table.add_row(label, value)
    terminal.show(table)
    if alarm := metrics.get("retrieval", {}).get("alarm"):
        terminal.line(f"alarm: {alarm}", alarm=True)
    for warning in metrics.get("judge", {}).get("warnings", ()):
        terminal.line(f"warning: {warning}", alarm=True)
    for error in errors:
        terminal.line(f"failed: {error}", alarm=True)
