"""Display of the progress of long work: on a terminal, in a log, or not at all."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TextIO

from kgqa.runtime.costs import Ledger, total
from kgqa.util.redaction import redact
from kgqa.util.text import escape_control

Advance = Callable[[str, int, int | None], None]  # step ("" if there is only one), how many more, and in all if known
BYTES = "bytes"  # the unit of a transfer
SIGN_OF_LIFE = 60  # seconds between two lines of a log


class Stage(Protocol):
    """Programs that run. Their calls are in the ledger that the stage was opened with."""

    def record(self) -> None:
        """Show that the ledger has one more call."""

    def finish(self, *, failed: bool) -> None:
        """Show that one program has ended."""


class Display(Protocol):
    """The interface of all displays. A display only reads its arguments."""

    def line(self, text: str, *, alarm: bool = False) -> None:
        """Show a line of plain text, never markup."""

    def stage(self, title: str, count: int, ledger: Ledger) -> AbstractContextManager[Stage]:
        """Show `count` programs. One line stays at the end, unless they are cut short."""

    def counting(self, unit: str) -> AbstractContextManager[Advance]:
        """Show how many of something (passages, cells, BYTES) are read, stored or fetched, step by step."""


@dataclass
class StageProgress:
    """The progress of a stage. count: None if unknown."""

    title: str
    count: int | None
    ledger: Ledger = field(default_factory=Ledger)
    ended: int = 0
    failed: int = 0
    started: float = field(default_factory=time.monotonic)
    free: int = 0  # programs that ended before the first paid call: from the call cache
    paying_since: float = field(default_factory=time.monotonic)

    def end(self, *, failed: bool) -> None:
        """Count a program that ended."""
        self.ended += 1
        self.failed += failed
        if not total(list(self.ledger.paid.values())).calls:
            self.free, self.paying_since = self.ended, time.monotonic()

    def seconds_left(self) -> float | None:
        """Estimate from the mean of what ended since the first paid call. Return None before one has ended."""
        paid = self.ended - self.free
        if paid <= 0 or self.count is None:
            return None
        return (time.monotonic() - self.paying_since) / paid * (self.count - self.ended)

    def rates(self) -> str:
        """Return calls and tokens per second, and the share from the cache."""
        seconds = max(time.monotonic() - self.started, 1e-9)
        method, paid = total(self.ledger.method.values()), total(self.ledger.paid.values())
        hits = 100 * (1 - paid.calls / method.calls) if method.calls else 0
        return (
            f"{method.calls} model calls ({hits:.0f} % from the cache) · {paid.calls / seconds:.1f} calls/s"
            f" · {(paid.prompt_tokens + paid.output_tokens) / seconds:.0f} tokens/s"
        )

    def describe(self) -> str:
        """Return a line about a stage that runs."""
        left = self.seconds_left()
        time_left = "" if left is None else f" · about {clock(left)} left"
        return f"{self.title}: {self.ended}/{self.count}{time_left} · {self._detail()}"

    def summary(self) -> str:
        """Return a line about a stage that is done."""
        return f"{self.title}: {self.count} done · {self._detail()}"

    def _detail(self) -> str:
        return self.rates() + (f" · {self.failed} failed" if self.failed else "")


def clock(seconds: float) -> str:
    """Format a time: 1:05:09 is an hour, five minutes and nine seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


class PlainLines:
    """Lines for a log or a pipe: when a step starts, once a minute, and at the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last_sign = time.monotonic()

    def line(self, text: str, *, alarm: bool = False) -> None:  # noqa: ARG002 - plain lines have no colors
        self._stream.write(f"{escape_control(text)}\n")
        self._stream.flush()

    @contextmanager
    def stage(self, title: str, count: int, ledger: Ledger) -> Iterator[Stage]:
        progress = StageProgress(title, count, ledger)
        self._last_sign = time.monotonic()
        yield _PlainStage(progress, self)
        self.line(progress.summary())

    @contextmanager
    def counting(self, unit: str) -> Iterator[Advance]:
        counts: dict[str, int] = {}
        self._last_sign = time.monotonic()

        def advance(step: str, more: int, of: int | None) -> None:
            if step and step not in counts and unit != BYTES:
                self.line(f"{step} {unit}" if of is None else f"{step} {of:,} {unit}")
            count = counts[step] = counts.get(step, 0) + more
            self.show_sign(lambda: f"{step or unit}: {count:,}" + (f" of {of:,}" if of else ""))

        yield advance

    def show_sign(self, line: Callable[[], str]) -> None:
        """Write a line if the last one is a minute old."""
        now = time.monotonic()
        if now - self._last_sign > SIGN_OF_LIFE:
            self._last_sign = now
            self.line(line())


@dataclass(frozen=True)
class _PlainStage:
    progress: StageProgress
    lines: PlainLines

    def record(self) -> None:
        self.lines.show_sign(self.progress.describe)

    def finish(self, *, failed: bool) -> None:
        self.progress.end(failed=failed)
        self.lines.show_sign(self.progress.describe)


class _Quiet(PlainLines):
    def line(self, text: str, *, alarm: bool = False) -> None:
        pass  # nothing is shown


QUIET: Display = _Quiet(sys.stderr)


@contextmanager
def log_lines(display: Display) -> Iterator[None]:
    """Show what kgqa logs as lines: long work that is not a call, such as the conversion of weights."""
    logger, lines = logging.getLogger("kgqa"), _Lines(display)
    logger.setLevel(logging.INFO)
    logging.getLogger("kgqa.events").propagate = False  # only for logs, see `kgqa.runtime.monitor`
    logger.addHandler(lines)
    try:
        yield
    finally:
        logger.removeHandler(lines)


class _Lines(logging.Handler):
    def __init__(self, display: Display) -> None:
        super().__init__()
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        self._display.line(redact(record.getMessage()))
