"""The terminal as a display: rich where somebody looks on, plain lines in a pipe."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from kgqa.cli.terminal.cells import live_cells
from kgqa.cli.terminal.progress import counting_bars, stage_bar
from kgqa.runtime.costs import Ledger
from kgqa.runtime.display import Advance, PlainLines, Stage
from kgqa.util.terminal_text import escape_control


class _InertConsole(Console):
    """Text in whatever is drawn is shown as `kgqa.util.terminal_text` says; rich's own colours and movements stay."""

    def render_str(self, text: str, **given: Any) -> Text:
        return super().render_str(escape_control(text), **given)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=escape_control(segment.text))


class Terminal:
    """`width`: of tables that go into a file or a program, in columns; None is what rich takes there, 80.

    Of a pipe in a terminal (`kgqa models | head`) it is the terminal's, which rich learns from another stream.
    """

    def __init__(self, width: int | None = 160) -> None:
        self.console: Console = _InertConsole(width=None if sys.stdout.isatty() or _is_watched_pipe() else width)
        self._piped = None if self.console.is_terminal else PlainLines(sys.stdout)

    def line(self, text: str, *, alarm: bool = False, style: str | None = None) -> None:
        """Print a text of passages or models without markup."""
        self.console.print(text, style="red" if alarm else style, markup=False, highlight=False, soft_wrap=True)

    def show(self, drawn: RenderableType) -> None:
        """Print a table or a rule, without colors for numbers. The caller escapes its texts."""
        self.console.print(drawn, highlight=False)

    def result(self, path: Path) -> None:
        """Print the last line of a command, plain, so that scripts can read it."""
        sys.stdout.write(f"{escape_control(str(path))}\n")
        sys.stdout.flush()

    def stage(self, title: str, count: int, ledger: Ledger) -> AbstractContextManager[Stage]:
        if self._piped:
            return self._piped.stage(title, count, ledger)
        return stage_bar(self.console, title, count, ledger)

    def counting(self, unit: str) -> AbstractContextManager[Advance]:
        return self._piped.counting(unit) if self._piped else counting_bars(self.console, unit)

    def cells(self, sweep: Path) -> AbstractContextManager[None]:
        return self._piped.cells(sweep) if self._piped else live_cells(self.console, sweep)


def _is_watched_pipe() -> bool:
    try:
        return sys.stderr.isatty() and stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError):  # no file, or closed
        return False
