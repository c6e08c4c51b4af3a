"""What a person sees while a run works: a live line in a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kgqa.runtime.costs import Ledger, total
from kgqa.runtime.scheduler import Record

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID


SIGN_OF_LIFE = 60  # seconds between two lines where there is no terminal


class SignOfLife:
    """One line a minute of long work where there is no terminal, so that a log shows how far it is."""

    def __init__(self, console: Console) -> None:
        self._console, self._spoken = console, time.monotonic()

    def __call__(self, line: Callable[[], str]) -> None:
        now = time.monotonic()
        if not self._console.is_terminal and now - self._spoken > SIGN_OF_LIFE:
            self._spoken = now
            self._console.print(line(), markup=False, highlight=False, soft_wrap=True)


class Stage:
    """Progress of one stage: programs finished, calls and tokens per second, cache hits."""

    def __init__(self, title: str, count: int, progress: Progress | None, console: Console) -> None:
        self.ledger = Ledger()
        self._title, self._count, self._progress = title, count, progress
        self._finished = self._failed = 0
        self._started, self._sign = time.monotonic(), SignOfLife(console)
        self._task: TaskID | None = progress.add_task(title, total=count, detail="") if progress else None

    def record(self, record: Record) -> None:
        self.ledger.add(record)
        self._show()

    def finished(self, *, failed: bool) -> None:
        self._finished += 1
        self._failed += failed
        self._show(advance=1)

    def detail(self) -> str:
        seconds = max(time.monotonic() - self._started, 1e-9)
        method, paid = total(self.ledger.method.values()), total(self.ledger.paid.values())
        tokens = paid.prompt_tokens + paid.output_tokens
        hits = 100 * (1 - paid.calls / method.calls) if method.calls else 0
        failed = f" · {self._failed} failed" if self._failed else ""
        return (
            f"{method.calls} model calls ({hits:.0f} % from the cache) · {paid.calls / seconds:.1f} calls/s"
            f" · {tokens / seconds:.0f} tokens/s{failed}"
        )

    def _show(self, advance: int = 0) -> None:
        if self._progress and self._task is not None:
            self._progress.update(self._task, advance=advance, detail=self.detail())
        self._sign(lambda: f"{self._title}: {self._finished}/{self._count} · {self.detail()}")


@contextmanager
def stage(title: str, count: int, console: Console) -> Iterator[Stage]:
    """Show the progress of `count` programs; ends with one plain line that stays."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    if not console.is_terminal:
        shown = Stage(title, count, None, console)
        yield shown
    else:
        columns = (TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, TextColumn("{task.fields[detail]}"), console=console, transient=True) as progress:
            shown = Stage(title, count, progress, console)
            yield shown
    console.print(f"{title}: {count} done · {shown.detail()}", highlight=False, soft_wrap=True)
