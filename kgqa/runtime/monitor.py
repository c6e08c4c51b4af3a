"""Monitoring of long work: what its display shows also goes into its log and its heartbeat."""

from __future__ import annotations

import logging
import os
import shlex
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType

from kgqa.errors import KgqaError, note
from kgqa.runtime.costs import Ledger, total
from kgqa.runtime.display import Advance, Display, Stage, Tally
from kgqa.runtime.heartbeat import Heartbeat
from kgqa.runtime.sweep_board import SweepBoard
from kgqa.runtime.work_log import log_event, work_log
from kgqa.types import Json

BEAT = 2.0  # seconds between two heartbeats
PROGRESS = 60.0  # seconds between two lines of progress in the log
_LOGGED = ("stage", "ended", "failed", "count", "calls", "tokens", "usd", "per_minute", "tokens_per_second")


@contextmanager
def monitor_work(display: Display, what: str, folder: Path, **identity: Json) -> Iterator[Display]:
    """Yield a display for the work in this folder. An error that ends the work gets notes on how to continue.

    Args:
        what: as in `Heartbeat`.
        identity: fields of the log's first line.
    """
    now = time.time()
    beat = Heartbeat(
        what=what, folder=str(folder), command=command_line(),
        host=socket.gethostname(), pid=os.getpid(), started=now, updated=now,
    )  # fmt: skip
    waits = _Waits()
    with work_log(folder, waits):
        log_event("start", f"{what} in {folder}", **_environment(beat), **identity)
        with RunMonitor(display, beat, waits) as monitor:
            yield monitor


class RunMonitor:
    """A display that passes everything on and writes heartbeats while it is open."""

    def __init__(self, display: Display, beat: Heartbeat, waits: _Waits) -> None:
        self._display, self._beat, self._waits = display, beat, waits
        self._tallies: list[Tally] = []  # of stages of calls
        self._tally: Tally | None = None  # of what runs now
        self._board: SweepBoard | None = None
        self._stop, self._logged = threading.Event(), time.monotonic()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def __enter__(self) -> RunMonitor:
        self._beat.write()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        self._beat.remove()
        self._end(error)

    def line(self, text: str, *, alarm: bool = False) -> None:
        log_event("line", text, level=logging.WARNING if alarm else logging.INFO)
        self._display.line(text, alarm=alarm)

    @contextmanager
    def stage(self, title: str, count: int, ledger: Ledger) -> Iterator[Stage]:
        tally = self._tally = Tally(title, count, ledger)
        self._tallies.append(tally)
        log_event("stage", f"{title}: {count:,}", stage=title, count=count)
        with self._display.stage(title, count, ledger) as shown:
            yield _CountedStage(tally, shown)
        self._log_progress("stage done", self._current())

    @contextmanager
    def counting(self, unit: str) -> Iterator[Advance]:
        tallies: dict[str, Tally] = {}
        with self._display.counting(unit) as shown:

            def advance(step: str, more: int, of: int | None) -> None:
                if step not in tallies:
                    title = f"{step} {unit}".strip()
                    tallies[step] = Tally(title, of, Ledger())
                    log_event("stage", title, stage=title, count=of)
                self._tally = tallies[step]
                self._tally.ended += more
                self._tally.count = of
                shown(step, more, of)

            yield advance

    def cells(self, sweep: Path) -> AbstractContextManager[None]:
        self._board = SweepBoard(sweep)
        return self._display.cells(sweep)

    def _end(self, error: BaseException | None) -> None:
        beat = self._current()
        fields = {"seconds": round(beat.updated - beat.started, 1), **self._figures(beat)}
        if error is None:
            log_event("end", "done", outcome="done", **fields)
            return
        outcome = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        cause = " ".join(f"{type(error).__name__}: {error}".split())
        log_event("end", cause, level=logging.ERROR, outcome=outcome, **fields)
        if beat.stage:
            of = f"{beat.ended:,} of {beat.count:,}" if beat.count is not None else f"{beat.ended:,}"
            note(error, f"saved: {of} {beat.stage} in {beat.folder}, and every reply in the call cache")
            if beat.command:
                note(error, f"continue with: {beat.command}")

    def _run(self) -> None:
        while not self._stop.wait(BEAT):
            try:
                beat = self._current()
            except (RuntimeError, KgqaError):  # sums that grew while they were read, or a sweep's file being replaced
                continue
            beat.write()
            if time.monotonic() - self._logged >= PROGRESS:
                self._log_progress("progress", beat)

    def _log_progress(self, event: str, beat: Heartbeat) -> None:
        self._logged = time.monotonic()
        of = f" of {beat.count:,}" if beat.count is not None else ""
        log_event(event, f"{beat.stage}: {beat.ended:,}{of}", **self._figures(beat))

    def _current(self) -> Heartbeat:
        """Return how far the work is. Sums of calls and costs are of all its stages."""
        tally = self._tally or Tally("", None, Ledger())
        stage, ended, failed, count = tally.title, tally.ended, tally.failed, tally.count
        if self._board:
            states = [cell.status for cell in self._board.states()]
            failed = states.count("failed")
            stage, ended, count = "cells", states.count("done") + failed + states.count("not run"), len(states)
        paid = total([spent for tally in self._tallies for spent in list(tally.ledger.paid.values())])
        tokens, seconds = paid.prompt_tokens + paid.output_tokens, max(time.monotonic() - tally.started, 1e-9)
        left = tally.seconds_left()
        return self._beat.replace(
            updated=time.time(), stage=stage, ended=ended, failed=failed, count=count,
            calls=paid.calls, tokens=tokens, usd=_dollars(self._tallies),
            per_minute=round(60 * ended / seconds, 2), tokens_per_second=round(tally.tokens() / seconds, 1),
            seconds_left=None if left is None else round(left), waits_for=self._waits.current(),
        )  # fmt: skip

    def _figures(self, beat: Heartbeat) -> dict[str, Json]:
        """Return the fields of a log line; flags are those of the models' replies."""
        flags = total([tally for stage in self._tallies for tally in list(stage.ledger.method.values())]).flags
        return {**{name: getattr(beat, name) for name in _LOGGED}, "flags": dict(sorted(flags.items()))}


class _CountedStage:
    """A stage of the display, with a tally of its own."""

    def __init__(self, tally: Tally, shown: Stage) -> None:
        self._tally, self._shown = tally, shown
        self.record = shown.record

    def finish(self, *, failed: bool) -> None:
        self._tally.end(failed=failed)
        self._shown.finish(failed=failed)


class _Waits(logging.Handler):
    """The last thing that the work waited for, until the wait is over."""

    def __init__(self) -> None:
        super().__init__()
        self._until, self._cause = 0.0, ""

    def emit(self, record: logging.LogRecord) -> None:
        fields = getattr(record, "fields", {})
        if fields.get("event") == "wait":
            self._until, self._cause = time.monotonic() + float(fields["seconds"]), str(fields["cause"])

    def current(self) -> str | None:
        return self._cause if time.monotonic() < self._until else None


def command_line() -> str:
    """Return the command of this process as it can be typed again; "" if it is another program."""
    program = Path(sys.argv[0])
    is_kgqa = program.name == "kgqa" or (program.parent.name == "kgqa" and program.name == "__main__.py")
    return shlex.join(["kgqa", *sys.argv[1:]]) if is_kgqa else ""


def _environment(beat: Heartbeat) -> dict[str, Json]:
    from importlib.metadata import version

    python = ".".join(map(str, sys.version_info[:3]))
    return {"kgqa": version("kgqa"), "python": python, "command": beat.command, "host": beat.host, "pid": beat.pid}


def _dollars(tallies: list[Tally]) -> float | None:
    """Return what this command paid, or None if a price is unknown."""
    sums = [tally.ledger.dollars() for tally in tallies]
    known = [dollars for dollars in sums if dollars is not None]
    return round(sum(known), 6) if known and len(known) == len(sums) else None
