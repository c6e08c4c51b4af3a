"""Long work under watch: what its display is told also goes into its folder's log and, as a claim, to `kgqa status`."""

from __future__ import annotations

import logging
import os
import shlex
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from kgqa.artefacts.claim import Claim
from kgqa.errors import KgqaError, note
from kgqa.runtime.at_work import claiming, keep_claim
from kgqa.runtime.costs import Ledger, total
from kgqa.runtime.display import Advance, Display, Stage, Tally
from kgqa.runtime.sweep_board import SweepBoard
from kgqa.runtime.work_log import tell, work_log
from kgqa.types import Json

BEAT = 2.0  # seconds between two signs of life
PROGRESS = 60.0  # seconds between two lines of progress
RECENT = 180.0  # seconds that rates are of


@contextmanager
def watched(display: Display, what: str, folder: Path, **identity: Json) -> Iterator[Display]:
    """A display for the work in this folder. An error that ends the work gets notes: what is kept, how to go on.

    what: as in `Claim`. identity: fields of the log's first line.
    """
    now, command = time.time(), command_line()
    claim = Claim(
        what=what, folder=str(folder), command=command,
        host=socket.gethostname(), pid=os.getpid(), started=now, updated=now,
    )  # fmt: skip
    waits = _Waits()
    with ExitStack() as open_:
        open_.enter_context(work_log(folder, waits))
        tell("start", f"{what} in {folder}", **_start(claim), **identity)
        yield open_.enter_context(Watch(display, open_.enter_context(claiming(claim)), claim, waits))


class Watch:
    """A display that hands everything on; while it is open there are signs of life, whether or not anything goes on."""

    def __init__(self, display: Display, file: Path, claim: Claim, waits: _Waits) -> None:
        self._display, self._file, self._claim, self._waits = display, file, claim, waits
        self._tally: Tally | None = None  # of the stage that runs, or ran last
        self._counted: tuple[str, int, int | None] = ("", 0, None)
        self._tallies: list[Tally] = []
        self._board: SweepBoard | None = None
        self._samples: deque[tuple[float, int, int]] = deque()  # when, how many had ended, tokens paid
        self._stop, self._started, self._said = threading.Event(), time.monotonic(), time.monotonic()
        self._heart = threading.Thread(target=self._beat, name="status", daemon=True)

    def __enter__(self) -> Watch:
        self._heart.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._heart.join()
        self._end(error)

    def line(self, text: str, *, alarm: bool = False) -> None:
        tell("line", text, level=logging.WARNING if alarm else logging.INFO)
        self._display.line(text, alarm=alarm)

    @contextmanager
    def stage(self, title: str, count: int, ledger: Ledger) -> Iterator[Stage]:
        tally = self._tally = Tally(title, count, ledger)
        self._tallies.append(tally)
        self._samples.clear()
        tell("stage", f"{title}: {count:,}", stage=title, count=count)
        with self._display.stage(title, count, ledger) as shown:
            yield _Both(tally, shown)
        self._progress("stage done", self._now())

    @contextmanager
    def counting(self, unit: str) -> Iterator[Advance]:
        counts: dict[str, int] = {}
        with self._display.counting(unit) as shown:

            def advance(step: str, more: int, of: int | None) -> None:
                if step not in counts:
                    self._samples.clear()
                    tell("stage", f"{step} {unit}".strip(), stage=f"{step} {unit}".strip(), count=of)
                counts[step] = counts.get(step, 0) + more
                self._tally, self._counted = None, (f"{step} {unit}".strip(), counts[step], of)
                shown(step, more, of)

            yield advance

    def cells(self, sweep: Path) -> AbstractContextManager[None]:
        self._board = SweepBoard(sweep)
        return self._display.cells(sweep)

    def _end(self, error: BaseException | None) -> None:
        """The last line of the log; what is kept is noted on the error."""
        claim = self._now()
        fields = {"seconds": round(time.monotonic() - self._started, 1), **_figures(claim), "flags": self._flags()}
        if error is None:
            tell("end", "done", outcome="done", **fields)
            return
        outcome = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        cause = " ".join(f"{type(error).__name__}: {error}".split())
        tell("end", cause, level=logging.ERROR, outcome=outcome, **fields)
        if claim.stage:
            of = f"{claim.ended:,} of {claim.count:,}" if claim.count is not None else f"{claim.ended:,}"
            note(error, f"kept: {of} {claim.stage} in {claim.folder}, and every reply in the call cache")
            if claim.command:
                note(error, f"go on with: {claim.command}")

    def _beat(self) -> None:
        while not self._stop.wait(BEAT):
            try:
                claim = self._now()
            except (RuntimeError, KgqaError):  # sums that grew while they were read, a sweep's file just replaced
                continue
            keep_claim(self._file, claim)
            if time.monotonic() - self._said >= PROGRESS:
                self._progress("progress", claim)

    def _progress(self, event: str, claim: Claim) -> None:
        self._said = time.monotonic()
        of = f" of {claim.count:,}" if claim.count is not None else ""
        tell(event, f"{claim.stage}: {claim.ended:,}{of}", **_figures(claim), flags=self._flags())

    def _now(self) -> Claim:
        """How far the work is; sums of calls and costs are of all its stages."""
        paid = [total(list(tally.ledger.paid.values())) for tally in self._tallies]
        tokens = sum(tally.prompt_tokens + tally.output_tokens for tally in paid)
        stage, ended, count = self._counted
        failed = 0
        if self._board:
            states = [cell.status for cell in self._board.states()]
            failed = states.count("failed")
            stage, ended, count = "cells", states.count("done") + failed + states.count("not run"), len(states)
        elif tally := self._tally:
            stage, ended, failed, count = tally.title, tally.ended, tally.failed, tally.count
        per_minute, tokens_per_second = self._rates(ended, tokens)
        left = count - ended if count is not None else None
        return replace(
            self._claim, updated=time.time(), stage=stage, ended=ended, failed=failed, count=count,
            calls=sum(tally.calls for tally in paid), tokens=tokens, usd=_dollars(self._tallies),
            per_minute=per_minute, tokens_per_second=tokens_per_second,
            seconds_left=round(60 * left / per_minute) if left is not None and per_minute else None,
            waits_for=self._waits.now(),
        )  # fmt: skip

    def _rates(self, ended: int, tokens: int) -> tuple[float | None, float | None]:
        now = time.monotonic()
        self._samples.append((now, ended, tokens))
        while now - self._samples[0][0] > RECENT:
            self._samples.popleft()
        since, ended_then, tokens_then = self._samples[0]
        if (seconds := now - since) < BEAT / 2:
            return None, None
        return round(60 * (ended - ended_then) / seconds, 2), round((tokens - tokens_then) / seconds, 1)

    def _flags(self) -> dict[str, Json]:
        """What replies of models carried: constraints that were not followed, thoughts cut short, …"""
        sums = sum((total(list(tally.ledger.method.values())).flags for tally in self._tallies), start=total([]).flags)
        return dict(sorted(sums.items()))


class _Both:
    """A stage on the display beneath, and its tally here."""

    def __init__(self, tally: Tally, shown: Stage) -> None:
        self._tally, self.recorded = tally, shown.recorded
        self._shown = shown

    def finished(self, *, failed: bool) -> None:
        self._tally.end(failed=failed)
        self._shown.finished(failed=failed)


class _Waits(logging.Handler):
    """The last thing that was waited for, until the wait is over."""

    def __init__(self) -> None:
        super().__init__()
        self._until, self._what = 0.0, ""

    def emit(self, record: logging.LogRecord) -> None:
        told = getattr(record, "told", {})
        if told.get("event") == "wait":
            self._until, self._what = time.monotonic() + float(told["seconds"]), str(told["cause"])

    def now(self) -> str | None:
        return self._what if time.monotonic() < self._until else None


def command_line() -> str:
    """The command that this process is, as it can be typed again; "" where it is another program."""
    program = Path(sys.argv[0])
    ours = program.name == "kgqa" or (program.parent.name == "kgqa" and program.name in ("cli.py", "__main__.py"))
    return shlex.join(["kgqa", *sys.argv[1:]]) if ours else ""


def _start(claim: Claim) -> dict[str, Json]:
    from importlib.metadata import version

    python = ".".join(map(str, sys.version_info[:3]))
    return {"kgqa": version("kgqa"), "python": python, "command": claim.command, "host": claim.host, "pid": claim.pid}


def _figures(claim: Claim) -> dict[str, Json]:
    named = ("stage", "ended", "failed", "count", "calls", "tokens", "usd", "per_minute", "tokens_per_second")
    return {name: getattr(claim, name) for name in (*named, "seconds_left", "waits_for")}


def _dollars(tallies: list[Tally]) -> float | None:
    """Paid in this command; None where a price is not known."""
    sums = [tally.ledger.dollars() for tally in tallies]
    known = [dollars for dollars in sums if dollars is not None]
    return round(sum(known), 6) if known and len(known) == len(sums) else None
