"""Output at the end of a sweep: its tables, and the cells without figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.cells import cell_len
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from kgqa.cli.terminal.console import Terminal
from kgqa.report.sweeps import Entry, SweepReport, SweepTable, tables
from kgqa.runtime.monitor import command_line
from kgqa.sweeps.running import Swept

_GAP = 2  # columns between two of a table
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
    """Show tables without interpreting markup in their texts."""
    for table in tables(report):
        for part in _parts(table, terminal.console.width):
            terminal.show(part)
    for number, name, status, why in report.failures():
        terminal.line(f"cell {number} {status}: {name}: {why}", alarm=True)


def _parts(table: SweepTable, width: int) -> list[Table]:
    """Split columns into tables that fit the terminal; each starts with the numbers of the cells."""
    cells = [[str(cell.number), *map(_style, entries)] for cell, entries in table.rows]
    widths = [max(cell_len(Text.from_markup(row[column]).plain) for row in cells) for column in range(len(cells[0]))]
    headers = [header if _fits(table.header, widths, width) else header.rpartition(".")[2] for header in table.header]
    chosen, left = list[list[int]](), 0  # columns of each part
    for column in range(1, len(headers)):
        needed = max(widths[column], cell_len(headers[column])) + _GAP
        if not chosen or (needed > left and len(chosen[-1]) > 1):
            chosen.append([0])
            left = width - max(widths[0], cell_len(headers[0])) - _GAP
        chosen[-1].append(column)
        left -= needed
    return [_draw(table.title if place == 0 else "", headers, cells, columns) for place, columns in enumerate(chosen)]


def _draw(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], columns: Sequence[int]) -> Table:
    drawn = Table(title=escape(title) or None, title_justify="left", box=None, padding=(0, _GAP, 0, 0))
    for column in columns:
        drawn.add_column(escape(headers[column]), overflow="fold")
    for row in rows:
        drawn.add_row(*(row[column] for column in columns))
    return drawn


def _fits(header: Sequence[str], widths: Sequence[int], width: int) -> bool:
    return sum(max(wide, cell_len(name)) + _GAP for name, wide in zip(header, widths, strict=True)) <= width


def _style(entry: Entry) -> str:
    style = _STYLES.get(entry.mark)
    text = escape(entry.text + ("*" if entry.worse else ""))
    return f"[{style}]{text}[/]" if style else text
