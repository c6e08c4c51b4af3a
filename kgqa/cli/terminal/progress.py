"""Bars that go on while a stage runs or things are counted; they vanish when it ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Column
from rich.text import Text

from kgqa.runtime.costs import Ledger
from kgqa.runtime.display import BYTES, Advance, Stage, Tally, clock

WIDE = 100  # columns
SHOWN_EVERY = 1000  # things; drawing each of five million would take longer than reading them


@contextmanager
def stage_bar(console: Console, title: str, count: int, ledger: Ledger) -> Iterator[Stage]:
    """Show finished programs and costs; one plain line remains."""
    tally = Tally(title, count, ledger)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(10 if console.width < WIDE else 20, table_column=Column(no_wrap=True)),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        _TimeLeft(tally),
        TextColumn("{task.fields[detail]}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True, expand=True) as progress:
        yield _StageBar(tally, progress)
    console.print(tally.summary(), highlight=False, markup=False, soft_wrap=True)


class _TimeLeft(ProgressColumn):
    """Rich's own forgets what ended half a minute ago, so it knows nothing of questions that take longer."""

    def __init__(self, tally: Tally) -> None:
        super().__init__(table_column=Column(no_wrap=True))
        self._tally = tally

    def render(self, task: Task) -> Text:  # noqa: ARG002 - the tally knows more
        left = self._tally.seconds_left()
        return Text("-:--:--" if left is None else clock(left), style="progress.remaining")


class _StageBar:
    def __init__(self, tally: Tally, progress: Progress) -> None:
        self._tally, self._progress = tally, progress
        self._task = progress.add_task(tally.title, total=tally.count, detail="")

    def record(self) -> None:
        self._progress.update(self._task, detail=self._detail())

    def finish(self, *, failed: bool) -> None:
        self._tally.end(failed=failed)
        self._progress.update(self._task, advance=1, detail=self._detail())

    def _detail(self) -> str:
        """Return failures first, as a narrow terminal cuts the end."""
        return (f"{self._tally.failed} failed · " if self._tally.failed else "") + self._tally.rates()


@contextmanager
def counting_bars(console: Console, unit: str) -> Iterator[Advance]:
    """Show one bar per step."""
    amount: list[ProgressColumn] = [TextColumn("{task.completed:,.0f} " + unit)]
    if unit == BYTES:
        amount = [DownloadColumn(), TransferSpeedColumn()]
    columns = (TextColumn("{task.description}"), BarColumn(20), *amount, TimeRemainingColumn())
    progress = Progress(*columns, console=console, transient=True)
    tasks: dict[str, TaskID] = {}
    waiting: dict[str, int] = {}  # counted and not yet shown

    def advance(step: str, more: int, total: int | None) -> None:
        if step not in tasks:
            tasks[step] = progress.add_task(step, total=total)
        waiting[step] = waiting.get(step, 0) + more
        if abs(waiting[step]) >= SHOWN_EVERY or total is not None:
            progress.update(tasks[step], advance=waiting.pop(step), total=total)

    with progress:
        yield advance
