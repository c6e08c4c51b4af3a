"""Display the progress of long work on a terminal, in a log, or not at all."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import TextIO

from kgqa.errors import KgqaError
from kgqa.runtime.costs import Ledger, total
from kgqa.util.redaction import redact
from kgqa.util.text import duration, escape_control, pluralize
from kgqa.util.waiting import describe_waits

# step ("" if there is only one), more units, all units if known
Advance = Callable[[str, int, int | None], None]
# seconds between two lines of a log
SIGN_OF_LIFE = 60
# seconds between two looks at what kgqa waits for
LOOK = 1.0
# seconds between two lines about waits
WAIT_SHOWN = 30
# seconds. Drawing each of five million records would take longer than reading them
REDRAWN = 0.1


@dataclass
class Stage:
    """The progress of programs. Their calls are in the ledger. count: None if unknown."""

    title: str
    count: int | None
    ledger: Ledger = field(default_factory=Ledger)
    ended: int = 0
    failed: int = 0
    started: float = field(default_factory=time.monotonic)
    # programs that ended before the first paid call: from the call cache
    free: int = 0
    paying_since: float = field(default_factory=time.monotonic)
    watchers: list[Callable[[Stage], None]] = field(default_factory=list)  # called at each change
    # the last change by `advance` that was shown
    recorded: float = 0.0
    # another stage runs inside this one, and shows what kgqa waits for
    has_inner: bool = False

    def record(self) -> None:
        """Show a change of the ledger."""
        for watcher in self.watchers:
            watcher(self)

    def advance(self, more: int, count: int | None) -> None:
        """Count more units, of `count` in all if that is known."""
        self.ended, self.count = self.ended + more, count
        if time.monotonic() - self.recorded > REDRAWN:
            self.recorded = time.monotonic()
            self.record()

    def finish(self, *, failed: bool) -> None:
        """Count a program that has ended."""
        self.ended += 1
        self.failed += failed
        if not total(list(self.ledger.paid.values())).calls:
            self.free, self.paying_since = self.ended, time.monotonic()
        self.record()

    def seconds_left(self) -> float | None:
        """Return an estimate from the programs that have ended since the first paid call, or None before."""
        new = self.ended - self.free
        if new <= 0 or self.count is None:
            return None
        return (time.monotonic() - self.paying_since) / new * (self.count - self.ended)

    def parts(self) -> list[str]:
        """Return the parts of `describe`, the most important first."""
        left = self.seconds_left()
        time_left = self._describe_start() if left is None else f"{duration(left)} left"
        ended = f"{self.ended:,}" if self.count is None else f"{self.ended:,}/{self.count:,}"
        # programs of many calls run together: these counts move long before the first of them ends
        in_work = self.ledger.starts - self.ended
        return [
            ended,
            *([f"{in_work:,} in work"] if in_work > 0 else []),
            *self._failures(),
            time_left,
            *self._count_calls(),
            *self._rates(),
            *self._count_texts(),
        ]

    def describe(self) -> str:
        """Return a line about a running stage."""
        return f"{self.title} {' · '.join(self.parts())}"

    def describe_wait(self, waits: str) -> str:
        """Return the end of a line while kgqa waits: the counts that still move or else the time, and the causes."""
        calls = total(list(self.ledger.method.values())).calls
        counts = [*([pluralize(calls, "call")] if calls else []), *self._count_texts()]
        return " · ".join(
            [self.parts()[0], *(counts or [self._describe_start()]), f"waiting: {waits}"]
        )

    def summary(self) -> str:
        """Return a line about a finished stage."""
        title = f"{self.title}: {self.count:,} in {duration(time.monotonic() - self.started)}"
        return " · ".join([title, *self._failures(), *self._rates(), *self._count_calls()])

    def _failures(self) -> list[str]:
        return [f"{self.failed:,} failed"] if self.failed else []

    def _describe_start(self) -> str:
        return f"started {duration(time.monotonic() - self.started)} ago"

    def _count_texts(self) -> list[str]:
        texts = self.ledger.ranked_texts
        return [f"{pluralize(texts, 'text')} ranked"] if texts else []

    def _count_calls(self) -> list[str]:
        """Return the number of calls, with those that failed or were cached."""
        method = total(list(self.ledger.method.values()))
        if not method.calls:
            return []
        failed = f"{method.failed:,} failed, " if method.failed else ""
        cached = f"{100 * method.hits / method.calls:.0f} % cached"
        return [f"{pluralize(method.calls, 'call')}, {failed}{cached}"]

    def _rates(self) -> list[str]:
        """Return new calls and tokens per second."""
        seconds = max(time.monotonic() - self.started, 1e-9)
        new = total(list(self.ledger.paid.values()))
        if not new.calls:
            return []
        return [
            _rate(new.calls / seconds, "calls"),
            _rate(new.usage.tokens / seconds, "tokens"),
        ]


class Display:
    """The base of all displays, which shows nothing. A display only reads its arguments."""

    def line(self, text: str, *, alarm: bool = False) -> None:
        """Show a line of plain text, never markup."""

    def watching(self, stage: Stage) -> AbstractContextManager[None]:  # noqa: ARG002 - for other displays
        """Show a stage while the block runs."""
        return nullcontext()

    @contextmanager
    def stage(self, title: str, count: int | None, ledger: Ledger | None) -> Iterator[Stage]:
        """Show `count` programs with a line at the end, or only progress in units if there is no ledger."""
        stage = Stage(title, count, ledger or Ledger())
        stage.ledger.watch = stage.record
        with self.watching(stage):
            yield stage
        if ledger is not None:
            self.line(stage.summary())

    @contextmanager
    def counting(self, unit: str) -> Iterator[Advance]:
        """Count something (passages, cells, bytes) in one or more steps."""
        steps: dict[str, Stage] = {}
        with ExitStack() as stack:

            def advance(step: str, more: int, of: int | None) -> None:
                if step not in steps:
                    stack.close()  # the step before
                    steps[step] = stack.enter_context(
                        self.stage(f"{step} {unit}".strip(), of, None)
                    )
                steps[step].advance(more, of)

            yield advance


@contextmanager
def nest(stages: list[Stage], stage: Stage) -> Iterator[None]:
    """Add a stage to those that run around it."""
    for outer in stages[-1:]:
        outer.has_inner = True
    stages.append(stage)
    try:
        yield
    finally:
        stages.remove(stage)
        for outer in stages[-1:]:
            outer.has_inner = False


def _rate(per_second: float, unit: str) -> str:
    """Return a rate: 120 tokens/s, 0.3 calls/s, 1.5 calls/min."""
    if per_second < 0.1:
        return f"{60 * per_second:.1f} {unit}/min"
    return f"{per_second:,.0f} {unit}/s" if per_second >= 10 else f"{per_second:.1f} {unit}/s"


class PlainLines(Display):
    """Lines for a log or a pipe: at the start of a step, once a minute, at the end, and while kgqa waits."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last_sign = time.monotonic()
        # the innermost one is the last
        self._stages: list[Stage] = []

    def line(self, text: str, *, alarm: bool = False) -> None:  # noqa: ARG002 - plain lines have no colors
        self._stream.write(f"{escape_control(text)}\n")
        self._stream.flush()

    @contextmanager
    def watching(self, stage: Stage) -> Iterator[None]:
        self._last_sign = time.monotonic()
        stage.watchers.append(self._show_sign)
        with nest(self._stages, stage):
            if len(self._stages) > 1:
                # the outermost stage shows the waits of all
                yield
                return
            with self._watch_waits():
                yield

    @contextmanager
    def _watch_waits(self) -> Iterator[None]:
        """Write what kgqa waits for while the block runs."""
        stop = threading.Event()
        thread = threading.Thread(
            target=self._show_waits, args=(stop,), name="kgqa-waits", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _show_sign(self, stage: Stage) -> None:
        """Write a line if the last one is a minute old."""
        now = time.monotonic()
        if now - self._last_sign > SIGN_OF_LIFE:
            self._last_sign = now
            self.line(stage.describe())

    def _show_waits(self, stop: threading.Event) -> None:
        """Write what kgqa waits for, at most every 30 seconds: a queue can be empty for a moment."""
        last = -math.inf
        while not stop.wait(LOOK):
            waits = describe_waits()
            if waits and time.monotonic() - last >= WAIT_SHOWN:
                last = time.monotonic()
                # the work itself reports a closed stream, and a stage can end meanwhile
                with suppress(KgqaError, OSError, ValueError, IndexError):
                    stage = self._stages[-1]
                    self.line(f"{stage.title} {stage.describe_wait(waits)}")


QUIET = Display()


@contextmanager
def log_lines(display: Display) -> Iterator[None]:
    """Show the lines that kgqa logs. In a nested block with the same display, each line is shown once."""
    logger, lines = logging.getLogger("kgqa"), _Lines(display)
    if any(isinstance(other, _Lines) and other.display is display for other in logger.handlers):
        yield
        return
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
        self.display = display

    def emit(self, record: logging.LogRecord) -> None:
        self.display.line(redact(record.getMessage()))
