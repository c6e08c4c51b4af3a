"""Table of `kgqa doctor`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.markup import escape
from rich.table import Table

from kgqa.cli.terminal.console import Terminal
from kgqa.system.doctor import Finding

MARKS = {"ok": "[green]✓[/]", "gap": "[red]✗[/]", "note": "·"}


def show_findings(findings: Sequence[Finding], terminal: Terminal, *, folded: bool = False) -> None:
    """Show findings by area, and how many are gaps."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for column in range(4):
        table.add_column(overflow="fold", no_wrap=column < 3)
    for area, group in groupby(findings, key=lambda finding: finding.area):
        of_area = list(group)
        absent = [finding for finding in of_area if folded and finding.optional and finding.state == "gap"]
        shown = [finding for finding in of_area if finding not in absent]
        if absent:
            names = ", ".join(finding.name for finding in absent)
            shown.append(Finding(area, "not here", "note", names, "only if you need one: kgqa doctor NAME"))
        for place, finding in enumerate(shown):
            text = escape(finding.text) + (f"\n[bold]→ {escape(finding.remedy)}[/]" if finding.remedy else "")
            table.add_row("" if place else f"[bold]{area}[/]", MARKS[finding.state], finding.name, text)
    terminal.show(table)
    gaps = sum(finding.state == "gap" and not (folded and finding.optional) for finding in findings)
    if gaps:
        there = f"{gaps} of {len(findings)} are not there" if not folded else f"missing to begin with: {gaps}"
        terminal.line(f"{there}; → says how to get {'it' if gaps == 1 else 'them'}")
    else:
        terminal.line("nothing is missing to begin with" if folded else "nothing is missing")
