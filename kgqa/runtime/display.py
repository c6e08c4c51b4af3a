"""What an experiment tells while it works, and who may listen: a terminal, a log, nobody."""

# ruff: noqa: ARG002, ARG005 - a display need not use all that it is told

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TextIO

from kgqa.inert import inert
from kgqa.redaction import without_secrets
from kgqa.runtime.costs import Ledger, total
from kgqa.runtime.sweep_board import SweepBoard

Advance = Callable[[str, int, int | None], None]  # step ("" where there is one alone), how many more, in all if known
BYTES = "bytes"  # the unit of a transfer
SIGN_OF_LIFE = 60  # seconds between two lines of a log


class Stage(Protocol):
    """Programs that run; the calls they made stand in the ledger that the stage was opened with."""

    def recorded(self) -> None:
        """The ledger has one call more."""

    def finished(self, *, failed: bool) -> None:
        """One program has ended."""


class Display(Protocol):
    """Where work that takes long says what it does. It only reads what it is given."""

    def line(self, text: str, *, alarm: bool = False) -> None:
        """Text as it is: never markup."""

    def stage(self, title: str, count: int, ledger: Ledger) -> AbstractContextManager[Stage]:
        """`count` programs; ends with one line that stays, unless they are cut short."""

    def counting(self, unit: str) -> AbstractContextManager[Advance]:
        """How many of something (passages, records, BYTES) are read, stored or fetched, step by step."""

    def cells(self, sweep: Path) -> AbstractContextManager[None]:
        """How far each cell in a sweep's folder is, whichever process runs it."""


@dataclass
class Tally:
    """How far a stage is."""

    title: str
    count: int
    ledger: Ledger
    ended: int = 0
    failed: int = 0
    started: float = field(default_factory=time.monotonic)
    free: int = 0  # ended before anything was paid for: from the call cache
    paying_since: float = field(default_factory=time.monotonic)

    def end(self, *, failed: bool) -> None:
        self.ended += 1
        self.failed += failed
        if not total(list(self.ledger.paid.values())).calls:
            self.free, self.paying_since = self.ended, time.monotonic()

    def seconds_left(self) -> float | None:
        """By the mean of what ended since calls are paid for, the first ones side by side; None before one has."""
        paid = self.ended - self.free
        return (time.monotonic() - self.paying_since) / paid * (self.count - self.ended) if paid else None

    def rates(self) -> str:
        """Calls and tokens per second, and what came from the cache."""
        seconds = max(time.monotonic() - self.started, 1e-9)
        method, paid = total(self.ledger.method.values()), total(self.ledger.paid.values())
        tokens = paid.prompt_tokens + paid.output_tokens
        hits = 100 * (1 - paid.calls / method.calls) if method.calls else 0
        return (
            f"{method.calls} model calls ({hits:.0f} % from the cache) · {paid.calls / seconds:.1f} calls/s"
            f" · {tokens / seconds:.0f} tokens/s"
        )

    def detail(self) -> str:
        """The same, and how many failed."""
        return self.rates() + (f" · {self.failed} failed" if self.failed else "")

    def so_far(self) -> str:
        left = self.seconds_left()
        time_left = "" if left is None else f" · about {clock(left)} left"
        return f"{self.title}: {self.ended}/{self.count}{time_left} · {self.detail()}"

    def whole(self) -> str:
        return f"{self.title}: {self.count} done · {self.detail()}"


def clock(seconds: float) -> str:
    """1:05:09 for an hour, five minutes and nine seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


class PlainLines:
    """Lines for a log or a pipe: when a step begins, once a minute, and at the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def line(self, text: str, *, alarm: bool = False) -> None:
        self._stream.write(f"{inert(text)}\n")
        self._stream.flush()

    @contextmanager
    def stage(self, title: str, count: int, ledger: Ledger) -> Iterator[Stage]:
        tally = Tally(title, count, ledger)
        yield _PlainStage(tally, _SignOfLife(self.line))
        self.line(tally.whole())

    @contextmanager
    def counting(self, unit: str) -> Iterator[Advance]:
        counts: dict[str, int] = {}
        sign = _SignOfLife(self.line)

        def advance(step: str, more: int, of: int | None) -> None:
            if step and step not in counts and unit != BYTES:
                self.line(f"{step} {unit}" if of is None else f"{step} {of:,} {unit}")
            count = counts[step] = counts.get(step, 0) + more
            sign(lambda: f"{step or unit}: {count:,}" + (f" of {of:,}" if of else ""))

        yield advance

    def cells(self, sweep: Path) -> AbstractContextManager[None]:
        return SweepBoard(sweep).told(self.line)


class _SignOfLife:
    """One line a minute of long work, so that a log shows how far it is."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._spoken = say, time.monotonic()

    def __call__(self, line: Callable[[], str]) -> None:
        now = time.monotonic()
        if now - self._spoken > SIGN_OF_LIFE:
            self._spoken = now
            self._say(line())


@dataclass(frozen=True)
class _PlainStage:
    tally: Tally
    sign: _SignOfLife

    def recorded(self) -> None:
        self.sign(self.tally.so_far)

    def finished(self, *, failed: bool) -> None:
        self.tally.end(failed=failed)
        self.sign(self.tally.so_far)


class _Quiet:
    def line(self, text: str, *, alarm: bool = False) -> None:
        pass

    @contextmanager
    def stage(self, title: str, count: int, ledger: Ledger) -> Iterator[Stage]:
        yield self

    @contextmanager
    def counting(self, unit: str) -> Iterator[Advance]:
        yield lambda step, more, of: None

    @contextmanager
    def cells(self, sweep: Path) -> Iterator[None]:
        yield

    def recorded(self) -> None:
        pass

    def finished(self, *, failed: bool) -> None:
        pass


QUIET: Display = _Quiet()


@contextmanager
def log_lines(display: Display) -> Iterator[None]:
    """Show what kgqa logs as lines: what takes long and is no call, such as the conversion of weights."""
    logger, lines = logging.getLogger("kgqa"), _Lines(display)
    logger.setLevel(logging.INFO)
    logging.getLogger("kgqa.events").propagate = False  # many lines, for logs alone: see `kgqa.runtime.work_log`
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
        self._display.line(without_secrets(record.getMessage()))
