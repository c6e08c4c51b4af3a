"""A sweep's cells as a table that is drawn anew while they run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from kgqa.runtime.sweep_board import REFRESH, CellProgress, SweepBoard

_SHOWN = 30  # cells; of more, those that run or failed and the last that ended
_STYLES = {"done": "green", "running": "cyan", "failed": "red", "not run": "yellow", "waiting": "dim"}
_FIRST_SHOWN = {"running": 0, "failed": 1, "not run": 2, "waiting": 4}  # 3: those that ended


@contextmanager
def live_cells(console: Console, sweep: Path) -> Iterator[None]:
    board, started = SweepBoard(sweep), time.monotonic()

    def drawn() -> Table:
        return _table(board, int(time.monotonic() - started))

    # stdout stays as it is: what a cell prints goes to its log
    with Live(get_renderable=drawn, console=console, refresh_per_second=1 / REFRESH, transient=True):
        yield


def _table(board: SweepBoard, seconds: int) -> Table:
    cells = board.states()
    counts = {status: sum(cell.status == status for cell in cells) for status in _STYLES}
    ended = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    title = f"{board.path} · {ended} · {seconds // 60}:{seconds % 60:02}"
    table = Table(title=escape(title), title_justify="left", box=None, padding=(0, 2, 0, 0), header_style="dim")
    for header in ("cell", "overrides", "status", ""):
        table.add_column(header, no_wrap=header == "status")
    for number, name, status, detail in _most_telling(cells):
        table.add_row(str(number), escape(name), f"[{_STYLES[status]}]{status}[/]", escape(detail))
    if len(cells) > _SHOWN:
        table.add_row("", f"… {len(cells)} cells in all", "", "")
    return table


def _most_telling(cells: Sequence[CellProgress]) -> list[CellProgress]:
    if len(cells) <= _SHOWN:
        return list(cells)
    telling = sorted(cells, key=lambda cell: (_FIRST_SHOWN.get(cell.status, 3), -cell.number))
    return sorted(telling[:_SHOWN], key=lambda cell: cell.number)
