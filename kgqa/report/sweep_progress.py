"""What a person sees while a sweep works: a table of its cells in a terminal, a line a cell elsewhere.

It reads the sweep's folder, so it shows cells of this process and of a launcher's processes alike.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgqa.runtime.sweep_folder import read_plan, read_result

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_REFRESH = 1.0  # seconds
_SHOWN = 30  # cells; of more, those that run or failed and the last that ended
_STYLES = {"done": "green", "running": "cyan", "failed": "red", "not run": "yellow", "waiting": "dim"}


class Board:
    """The cells of one sweep and how far each is."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._started = time.monotonic()

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Number, name, status and a detail, in cell order."""
        found = []
        for cell in read_plan(self._path)["cells"]:  # read anew: a search adds cells
            result = read_result(self._path, cell["number"])
            status = result["status"] if result else "waiting"
            found.append((str(cell["number"]), cell["name"], status, _detail(result)))
        return found

    def table(self) -> Table:
        from rich.markup import escape
        from rich.table import Table

        rows = self.rows()
        counts = {status: sum(row[2] == status for row in rows) for status in _STYLES}
        ended = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
        seconds = int(time.monotonic() - self._started)
        title = f"{self._path} · {ended} · {seconds // 60}:{seconds % 60:02}"
        table = Table(title=escape(title), title_justify="left", box=None, padding=(0, 2, 0, 0), header_style="dim")
        for header in ("cell", "overrides", "status", ""):
            table.add_column(header, no_wrap=header == "status")
        for number, name, status, detail in _most_telling(rows):
            table.add_row(number, escape(name), f"[{_STYLES[status]}]{status}[/]", escape(detail))
        if len(rows) > _SHOWN:
            table.add_row("", f"… {len(rows)} cells in all", "", "")
        return table


@contextmanager
def board(path: Path, console: Console) -> Iterator[None]:
    """Show the cells while the block runs."""
    shown = Board(path)
    if console.is_terminal:
        from rich.live import Live

        # stdout stays as it is: what a cell prints goes to its log
        with Live(get_renderable=shown.table, console=console, refresh_per_second=1 / _REFRESH, transient=True):
            yield
        return
    stop = threading.Event()
    speaker = threading.Thread(target=_speak, args=(shown, console, stop), name="sweep", daemon=True)
    speaker.start()
    try:
        yield
    finally:
        stop.set()
        speaker.join()


def _speak(shown: Board, console: Console, stop: threading.Event) -> None:
    """A line for every cell that begins or ends."""
    before = {row[0]: row[2] for row in shown.rows()}
    while True:
        last = stop.wait(_REFRESH)
        for number, name, status, detail in shown.rows():
            if before.get(number, "waiting") != status:
                before[number] = status
                told = f"cell {number} {status}: {name}" + (f" · {detail}" if detail and status != "running" else "")
                console.print(told, highlight=False, markup=False, soft_wrap=True)
        if last:
            return


def _most_telling(rows: Sequence[tuple[str, str, str, str]]) -> list[tuple[str, str, str, str]]:
    if len(rows) <= _SHOWN:
        return list(rows)
    order = {"running": 0, "failed": 1, "not run": 2, "waiting": 4}
    first = sorted(rows, key=lambda row: (order.get(row[2], 3), -int(row[0])))[:_SHOWN]
    return sorted(first, key=lambda row: int(row[0]))


def _detail(result: Mapping[str, Any] | None) -> str:
    if result is None:
        return ""
    if result["status"] == "running":
        return _so_far(Path(result["run"])) if result["run"] else ""
    return str(result["error"] or f"{result['seconds']:,.1f} s")


def _so_far(run: Path) -> str:
    """Questions answered, from the file that a run writes as they end."""
    try:
        with (run / "predictions.partial.jsonl").open("rb") as lines:
            return f"{sum(1 for _ in lines):,} questions"
    except FileNotFoundError:
        return ""
