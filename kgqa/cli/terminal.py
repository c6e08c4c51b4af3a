"""The terminal. Shows bars on a terminal, and plain lines in a pipe or a file.

All texts can come from files, models and servers. Control characters in them are escaped, and markup is not read.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from kgqa.cli.tables import Cells, fold, lay_out, style_text
from kgqa.runtime.display import Display, PlainLines, Stage, nest
from kgqa.types import Json
from kgqa.util.text import escape_control, escape_json
from kgqa.util.waiting import describe_waits

if TYPE_CHECKING:
    from kgqa.report.section import Section

# seconds without a line until a terminal shows that kgqa works
SILENCE, TICK = 2.0, 0.5
# columns for the texts of a table in a file or another program, without COLUMNS
WIDTH = 160
# columns of a terminal that leaves less room for bars
NARROW = 100
# a line that ends with a command
_COMMAND = re.compile(r"(.+:) (kgqa .+)")


class Terminal(Display):
    """The output of a command."""

    def __init__(self, stream: TextIO | None = None) -> None:
        stream = stream or sys.stdout
        has_width = stream.isatty() or _has_columns()
        # without it, rich takes the width of a pipe from the terminal of stderr
        self.console = Console(file=stream, width=None if has_width else WIDTH)
        self._lines = PlainLines(stream)
        self._changed = time.monotonic()  # when a line was printed
        # bars and programs that show their own progress
        self._screens = 0
        self._status = self.console.status("")
        self._stages: list[Stage] = []
        self._drawing = threading.Lock()

    @property
    def _narrows(self) -> bool:
        """Return whether the output is as wide as a terminal: a pipe has all columns, unless COLUMNS is set."""
        return self.console.is_terminal or _has_columns()

    def line(
        self, text: object, *, alarm: bool = False, style: str | None = None, folds: bool = True
    ) -> None:
        """Print one line or several. A terminal breaks long ones between words, except without `folds`.

        A command at the end of a text is on its own line and not broken, so that it can be copied.
        """
        self._clear()
        lines = [Text(escape_control(str(text)), "red" if alarm else style or "")]
        if folds and self._narrows:
            lines = _fold(lines[0], self.console.width)
        for line in lines:
            self.console.print(line, highlight=False, soft_wrap=True)

    def lines(self, texts: Iterable[object], *, alarm: bool = False, folds: bool = True) -> None:
        for text in texts:
            self.line(text, alarm=alarm, folds=folds)

    def warn(self, texts: Iterable[str]) -> None:
        """Print warnings to stderr, so that the output of a command stays the same for scripts."""
        self._clear()
        for text in texts:
            print_error(f"warning: {text}")

    def heading(self, text: str) -> None:
        self.line(f"\n{text}", style="bold")

    def table(
        self,
        header: Sequence[str],
        rows: Iterable[Cells],
        *,
        title: str = "",
        optional: int = 0,
        stack: int | None = None,
        all_columns: str = "add | less -S",
    ) -> list[str]:
        """Print a table, and return the names of the columns that fit.

        Columns of figures are aligned to the right. The last `optional` columns are omitted first, and the column
        `stack` gets its own line if the table is too wide. all_columns: where users find omitted ones. A pipe has all
        columns, unless COLUMNS is set.
        """
        width = self.console.width
        layout = lay_out(
            header,
            list(rows),
            width,
            optional=optional,
            stack=stack,
            narrows=self._narrows,
        )
        if title:
            self.line(title, style="italic")
        self._clear()
        for line in layout.lines(width):
            self.console.print(line, soft_wrap=True, highlight=False)
        if omitted := header[len(layout.header) :]:
            texts = f"not shown in {width} columns: {', '.join(omitted)}", f"all: {all_columns}"
            is_short = sum(map(len, texts)) + 3 <= width
            for text in [" · ".join(texts)] if is_short else texts:
                self.line(text, style="dim")
        return layout.header

    def sections(self, title: str, sections: Sequence[Section]) -> None:
        """Print the sections of a report."""
        if title:
            self.line(title, style="bold")
        for section in sections:
            self.heading(section.title)
            names = self.table(
                section.header, section.rows, optional=section.optional, stack=section.stack
            )
            for column, texts in section.instead.items():
                for text in texts if column not in names else ():
                    self.line(text, style="dim")
            if section.alarm:
                self.line(f"alarm: {section.alarm}", alarm=True)
            for text in section.text:
                # a Legend explains a column
                if getattr(text, "column", None) in (None, *names):
                    style = "red" if text.startswith("**Warning**") else "dim"
                    self.line(text.replace("**", ""), style=style)

    def result(self, path: object) -> None:
        """Print the last line of a command, plain, so that scripts can read it."""
        self._clear()
        sys.stdout.write(f"{escape_control(str(path))}\n")
        sys.stdout.flush()

    def suggest(self, *command: object) -> None:
        """Print a command to continue with, on a terminal only: scripts have no use for it."""
        if self.console.is_terminal:
            self.line(f"next: {shlex.join(['kgqa', *map(str, command)])}", folds=False)

    def end(
        self, folder: Path, failure: str | None = None, *, following: Sequence[object] = ()
    ) -> int:
        """Print why a run failed or the command that follows, its report and its folder. Return the exit code."""
        if failure is not None:
            self.line(f"kgqa: {failure}", alarm=True)
        elif following:
            self.suggest(*following)
        self.line(f"report: {folder / 'report.html'}")
        self.result(folder)
        return 0 if failure is None else 2

    def json(self, value: Json) -> None:
        """Print JSON to stdout."""
        self._clear()
        sys.stdout.write(escape_json(json.dumps(value, indent=2, ensure_ascii=False)) + "\n")

    @contextmanager
    def watching(self, stage: Stage) -> Iterator[None]:
        if not self.console.is_terminal:
            with self._lines.watching(stage):
                yield
            return
        with self.own_screen(), nest(self._stages, stage), _bars(self.console) as progress:
            task = progress.add_task(escape_control(stage.title), total=stage.count, stage=stage)
            stage.watchers.append(
                lambda stage: progress.update(task, completed=stage.ended, total=stage.count)
            )
            yield

    def _clear(self) -> None:
        """Remove the line that shows work: text next to it would keep a part of it. It returns after a silence."""
        with self._drawing:
            self._changed = time.monotonic()
            self._status.stop()

    @contextmanager
    def own_screen(self) -> Iterator[None]:
        """Leave the screen to the block, which shows its own progress."""
        with self._drawing:
            self._screens += 1
            self._status.stop()
        try:
            yield
        finally:
            self._changed = time.monotonic()
            self._screens -= 1

    @contextmanager
    def showing_work(self) -> Iterator[None]:
        """Show on a terminal that kgqa works, and what it waits for, while nothing else is printed."""
        if not self.console.is_terminal:
            yield
            return
        end = threading.Event()
        thread = threading.Thread(
            target=self._show_work, args=(end,), name="kgqa-work", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()
            self._status.stop()

    def _show_work(self, end: threading.Event) -> None:
        while not end.wait(TICK):
            waits = describe_waits()
            with self._drawing:
                silence = time.monotonic() - self._changed
                if self._screens or silence < SILENCE:
                    self._status.stop()
                else:
                    self._status.update(
                        style_text(f"waiting: {waits}" if waits else f"working, {silence:.0f} s")
                    )
                    self._status.start()


class _StageColumn(ProgressColumn):
    """The end of a stage's line: its parts, the most important first, or what kgqa waits for."""

    def __init__(self) -> None:
        super().__init__(Column(ratio=1))

    def render(self, task: Task) -> Text:
        stage: Stage = task.fields["stage"]
        waits = describe_waits()
        if waits and not stage.has_inner:
            return Text(escape_control(stage.describe_wait(waits)), style="yellow", overflow="fold")
        return Text(escape_control(" · ".join(stage.parts())), no_wrap=True, overflow="ellipsis")


def print_error(text: str) -> None:
    """Print a line to stderr, on a terminal broken between words."""
    Terminal(sys.stderr).line(text, folds=sys.stderr.isatty())


def _fold(text: Text, width: int) -> list[Text]:
    """Break long lines between words, and before a command at their end."""
    lines = list[Text]()
    for line in text.split("\n", allow_blank=True):
        if line.cell_len > width and (parts := _COMMAND.fullmatch(line.plain)):
            lines += [*fold(line[: parts.end(1)], width), Text("  ") + line[parts.start(2) :]]
        else:
            lines += fold(line, width)
    return lines


def _has_columns() -> bool:
    return os.environ.get("COLUMNS", "").isdigit()


def _bars(console: Console) -> Progress:
    bar = BarColumn(10 if console.width < NARROW else 20, table_column=Column(no_wrap=True))
    title = TextColumn("{task.description}", table_column=Column(no_wrap=True))
    return Progress(title, bar, _StageColumn(), console=console, transient=True, expand=True)
