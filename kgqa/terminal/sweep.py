"""What a sweep ends with: its tables, and the cells without figures."""

from __future__ import annotations

from collections import Counter

from rich.markup import escape
from rich.table import Table

from kgqa.experiment.sweep.running import Swept
from kgqa.report.sweeps import Entry, SweepReport, tables
from kgqa.runtime.watch import command_line
from kgqa.terminal.console import Terminal

_WIDE = 130  # columns of a terminal that shows intervals
_STYLES = {"best": "bold", "second": "underline"}


def show_sweep(swept: Swept, terminal: Terminal) -> int:
    """Print a sweep that has ended; its folder is the last line. Gives 2 if a cell failed or was not run."""
    _show_tables(SweepReport.read(swept.folder), terminal)
    counts = Counter(result.status for result in swept.results)
    terminal.line(f"cells: {', '.join(f'{count} {status}' for status, count in counts.items())}")
    if (command := command_line()) and not swept.whole:
        terminal.line(f"what was answered is kept; go on with: {command}")
    terminal.line(f"report: {swept.folder / 'report.html'}")
    terminal.result(swept.folder)
    return 0 if swept.whole else 2


def _show_tables(report: SweepReport, terminal: Terminal) -> None:
    """Nothing of it is taken for markup."""
    narrow = terminal.console.width < _WIDE
    for table in tables(report):
        padding = (0, 1 if narrow else 2, 0, 0)
        shown = Table(title=escape(table.title), title_justify="left", box=None, padding=padding)
        for header in table.header:
            shown.add_column(escape(header.rpartition(".")[2] if narrow else header), overflow="fold")
        for cell, entries in table.rows:
            shown.add_row(str(cell.number), *(_styled(entry, narrow=narrow) for entry in entries))
        terminal.show(shown)
    for number, name, status, why in report.failures():
        terminal.line(f"cell {number} {status}: {name}: {why}", alarm=True)


def _styled(entry: Entry, *, narrow: bool) -> str:
    """`narrow`: without the interval."""
    style = _STYLES.get(entry.mark)
    scored = entry.measured is not None and entry.measured.low is not None
    shown = entry.text.partition(" ")[0] if narrow and scored else entry.text
    text = escape(shown + ("*" if entry.worse else ""))
    return f"[{style}]{text}[/]" if style else text
