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
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from kgqa.runtime.costs import Ledger
from kgqa.runtime.display import BYTES, Advance, Stage, Tally

SHOWN_EVERY = 1000  # things; drawing each of five million would take longer than reading them


@contextmanager
def stage_bar(console: Console, title: str, count: int, ledger: Ledger) -> Iterator[Stage]:
    """Programs ended of `count`, and the ledger's sums; ends with one plain line that stays."""
    tally = Tally(title, count, ledger)
    columns = (TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[detail]}"), console=console, transient=True) as progress:
        yield _StageBar(tally, progress)
    console.print(tally.whole(), highlight=False, markup=False, soft_wrap=True)


class _StageBar:
    def __init__(self, tally: Tally, progress: Progress) -> None:
        self._tally, self._progress = tally, progress
        self._task = progress.add_task(tally.title, total=tally.count, detail="")

    def recorded(self) -> None:
        self._progress.update(self._task, detail=self._tally.detail())

    def finished(self, *, failed: bool) -> None:
        self._tally.end(failed=failed)
        self._progress.update(self._task, advance=1, detail=self._tally.detail())


@contextmanager
def counting_bars(console: Console, unit: str) -> Iterator[Advance]:
    """A bar for each step."""
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
