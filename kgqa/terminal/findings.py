"""What `kgqa doctor` shows."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from kgqa.experiment.machine.doctor import Finding
from kgqa.terminal.console import Terminal

MARKS = {"ok": "[green]✓[/]", "gap": "[red]✗[/]", "note": "·"}


def show_findings(findings: Sequence[Finding], terminal: Terminal) -> None:
    """A line each, in the order given, an area's name before its first one; below them how many are gaps."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for column in range(4):
        table.add_column(overflow="fold", no_wrap=column < 3)
    area = ""
    for finding in findings:
        text = escape(finding.text) + (f"\n[bold]→ {escape(finding.remedy)}[/]" if finding.remedy else "")
        heading = "" if finding.area == area else f"[bold]{finding.area}[/]"
        table.add_row(heading, MARKS[finding.state], finding.name, text)
        area = finding.area
    terminal.show(table)
    gaps = sum(finding.state == "gap" for finding in findings)
    terminal.line(f"{gaps} of {len(findings)} are not there; → says how to get them" if gaps else "nothing is missing")
