"""Monitor long work: write its log, and its progress to a small file below `outputs/.running`.

`kgqa runs --running` shows these files. The file is removed when the work ends, but not after Ctrl-C. A killed process
leaves its file behind without new heartbeats, too. The same command replaces the file.

The log is `log.jsonl` in the folder of the work, one JSON object per line. It uses Python's logging. Lines for users go
to the logger "kgqa" and its children. Other events go to EVENTS, with fields as `extra={"fields": {"event": …}}`.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime, timezone
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TextIO

from kgqa.artifacts.run import SWEEP
from kgqa.artifacts.schema import Artifact, Number, read
from kgqa.artifacts.sweep import Sweep, cell_file
from kgqa.config.files import load_yaml
from kgqa.config.settings import list_reported_settings
from kgqa.errors import BudgetSpent, DataError, StorageError, UsageError, note
from kgqa.runtime.costs import Ledger, Spent
from kgqa.runtime.display import Display, Stage
from kgqa.types import Json
from kgqa.util.digests import text_digest
from kgqa.util.fs import ensure_dir, json_text, open_to_append
from kgqa.util.places import outputs
from kgqa.util.redaction import redact
from kgqa.util.text import duration

LOG = "log.jsonl"
INDEX_BUILD = "index build"  # the kind of work
KG_BUILD = "kg build"
LARGEST = 4_000_000  # bytes of one file
# older files: log.jsonl.1 is the newest of them
OLDER = 4
EVENTS = logging.getLogger("kgqa.events")
BEAT = 2.0  # seconds between two heartbeats
# seconds between two lines of progress in the log
LOGGED_EVERY = 60.0
# seconds without a heartbeat after which work counts as stopped
STOPPED = 60.0
# seconds after which stopped work is no longer shown
FORGOTTEN = 7 * 86_400.0
_LOGGED = {"stage", "ended", "failed", "count", "calls", "tokens", "usd"}


class Heartbeat(Artifact):
    """The progress of some work. Times are seconds since 1970. Unknown values are None.

    `ended`, `failed` and `count` have the unit of `stage`. `calls`, `tokens` and `usd` are of new (uncached) calls.
    """

    # run, sweep, kg build, index build, judge
    what: str
    folder: str
    command: str  # "" from Python
    host: str
    pid: int
    started: Number
    updated: Number
    stage: str = ""
    ended: int = 0
    failed: int = 0
    count: int | None = None
    calls: int = 0
    tokens: int = 0
    usd: Number | None = None
    seconds_left: Number | None = None
    # by Ctrl-C. In a notebook the process continues
    interrupted: bool = False

    @property
    def file(self) -> Path:
        return _folder(None) / f"{text_digest(str(Path(self.folder).absolute()), 16)}.json"

    @property
    def is_running(self) -> bool:
        if self.interrupted or (self.host == socket.gethostname() and not _is_alive(self.pid)):
            return False
        return time.time() - self.updated < STOPPED

    def describe(self) -> str:
        """Return the state in words."""
        if self.is_running:
            return "running"
        silence = duration(time.time() - self.updated)
        if self.interrupted:
            return f"interrupted {silence} ago"
        return f"stopped: no heartbeat from process {self.pid} on {self.host} for {silence}"

    def json(self) -> dict[str, Json]:  # type: ignore[override]
        """Return the fields and the state."""
        return {**super().json(), "state": "running" if self.is_running else "stopped"}

    def write(self) -> None:
        """Write the file. If the disk fails, the work continues without it."""
        with suppress(OSError):
            ensure_dir(self.file.parent)
            fresh = self.file.with_suffix(".new")
            fresh.write_text(json_text(super().json()), encoding="utf-8", errors="backslashreplace")
            fresh.replace(self.file)


def _is_alive(pid: int) -> bool:
    """Return whether a process of this machine runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        # another user's, or no such number
        return True
    return True


def read_heartbeats(root: Path | None = None) -> list[Heartbeat]:
    """Return all work below `outputs/` or another folder, the oldest first.

    Without stopped work of which the folder was removed, for example because no call was paid, and without stopped
    sweeps that another sweep has finished.
    """
    beats, home = [], (root or outputs()).parent
    for file in _folder(root).glob("*.json"):
        # the work has ended, or the file is damaged
        with suppress(DataError, OSError):
            beat = read(Heartbeat, file)
            if time.time() - beat.updated > FORGOTTEN:
                file.unlink()
            elif beat.is_running or _is_open(home / beat.folder, beat.what):
                beats.append(beat)
    return sorted(beats, key=lambda beat: (beat.started, beat.folder))


def _is_open(folder: Path, what: str) -> bool:
    """Return whether stopped work can be continued."""
    return folder.exists() and not (what == "sweep" and _is_finished_elsewhere(folder))


def _is_finished_elsewhere(path: Path) -> bool:
    """Return whether another finished sweep has the cells of this one, perhaps with another server or timeout."""
    with suppress(UsageError, OSError):
        sweep = Sweep.read(path)
        others = {file.parent for file in path.parent.glob(f"*/{SWEEP}")} - {path}
        # written when a sweep ends
        ended = (other for other in others if (other / "report.html").is_file())
        return any(_has_finished(other, sweep) for other in ended)
    return False


def _has_finished(path: Path, sweep: Sweep) -> bool:
    # a damaged sweep has no cells
    with suppress(UsageError, OSError):
        other = Sweep.read(path)
        return (
            (other.is_complete and other.search == sweep.search)
            and {cell.run for cell in sweep.cells} <= {cell.run for cell in other.cells}
            # a run can have had other questions
            and _read_settings(sweep) <= _read_settings(other)
        )
    return False


def _read_settings(sweep: Sweep) -> set[str]:
    """Return the settings of each cell that can change its answers."""
    files = (cell_file(sweep.path, cell.number, "yaml") for cell in sweep.cells)
    return {json.dumps(list_reported_settings(load_yaml(file)), sort_keys=True) for file in files}


def _folder(root: Path | None) -> Path:
    return (root or outputs()) / ".running"


@contextmanager
def monitor_work(display: Display, what: str, folder: Path, **identity: Json) -> Iterator[Display]:
    """Yield a display for the work in this folder. Add notes on how to continue to an error that ends the work.

    Args:
        what: as in `Heartbeat`.
        identity: fields of the log's first line.
    """
    from importlib.metadata import version

    now = time.time()
    beat = Heartbeat(
        what=what, folder=str(folder), command=command_line(),
        host=socket.gethostname(), pid=os.getpid(), started=now, updated=now,
    )  # fmt: skip
    python = ".".join(map(str, sys.version_info[:3]))
    environment = {"command": beat.command, "host": beat.host, "pid": beat.pid, **identity}
    with work_log(folder):
        log_event(
            "start", f"{what} in {folder}", kgqa=version("kgqa"), python=python, **environment
        )
        monitor = RunMonitor(display, beat)
        stop = threading.Event()
        thread = threading.Thread(
            target=monitor.beat_until, args=(stop,), name="heartbeat", daemon=True
        )
        beat.write()
        thread.start()
        error: BaseException | None = None
        try:
            yield monitor
        except BaseException as raised:
            error = raised
            raise
        finally:
            stop.set()
            thread.join()
            if isinstance(error, KeyboardInterrupt):
                monitor.current().replace(interrupted=True).write()
            else:
                with suppress(OSError):
                    beat.file.unlink()
            monitor.log_end(error)


class RunMonitor(Display):
    """A display that passes everything to another one, and sums it for heartbeats and the log."""

    def __init__(self, display: Display, beat: Heartbeat) -> None:
        self._display, self._beat = display, beat
        self._stages = [Stage("", None)]  # the last one runs now
        # of its stages, and of those of the work inside it, such as the cells of a sweep
        self._ledgers: list[Ledger] = []
        # the passages of an index are read again, and triples are in the call cache only
        self._saves = beat.what not in (INDEX_BUILD, KG_BUILD)

    def line(self, text: str, *, alarm: bool = False) -> None:
        log_event("line", text, level=logging.WARNING if alarm else logging.INFO)
        self._display.line(text, alarm=alarm)

    def watching(self, stage: Stage) -> AbstractContextManager[None]:
        # stages can share one
        if all(each is not stage.ledger for each in self._ledgers):
            self._ledgers.append(stage.ledger)
        return self._display.watching(stage)

    @contextmanager
    def stage(self, title: str, count: int | None, ledger: Ledger | None) -> Iterator[Stage]:
        with super().stage(title, count, ledger) as stage:
            self._stages.append(stage)
            log_event(
                "stage", title if count is None else f"{title}: {count:,}", stage=title, count=count
            )
            yield stage

    def beat_until(self, stop: threading.Event) -> None:
        """Write heartbeats, and once a minute a line of the log."""
        logged = time.monotonic()
        while not stop.wait(BEAT):
            try:
                beat = self.current()
            except RuntimeError:
                # sums that grew while they were read
                continue
            beat.write()
            if time.monotonic() - logged >= LOGGED_EVERY:
                logged = time.monotonic()
                log_event(
                    "progress", f"{beat.stage}: {beat.ended:,}", **beat.model_dump(include=_LOGGED)
                )

    def log_end(self, error: BaseException | None) -> None:
        """Log the outcome, and add notes to the error that ended the work."""
        beat = self.current()
        fields = {
            "seconds": round(beat.updated - beat.started, 1),
            **beat.model_dump(include=_LOGGED),
        }
        if error is None:
            log_event("end", "done", outcome="done", **fields)
            return
        outcome = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        cause = " ".join(f"{type(error).__name__}: {error}".split())
        log_event("end", cause, level=logging.ERROR, outcome=outcome, **fields)
        is_usage_error = isinstance(error, UsageError) and not isinstance(
            error, BudgetSpent | StorageError
        )
        if not (beat.calls or (beat.ended and not is_usage_error)):
            return
        saved = []
        if self._saves:
            of = (
                f"{beat.ended:,} of {beat.count:,}" if beat.count is not None else f"{beat.ended:,}"
            )
            cell, _, unit = beat.stage.rpartition(": ")
            saved.append(f"in {beat.folder}: {of} {unit}{cell and f' of {cell}'}")
        # a full disk loses the last replies
        if (self._saves or beat.calls) and not isinstance(error, StorageError):
            saved.append("all replies in the call cache")
        if saved:
            note(error, f"saved {', and '.join(saved)}")
        if beat.command:
            note(error, f"continue with: {beat.command}")

    def current(self) -> Heartbeat:
        """Return the progress of the current stage, and the sums of calls and costs of all stages."""
        progress, ledgers = self._stages[-1], list(self._ledgers)
        costs = sum((ledger.spent() for ledger in ledgers), Spent())
        left = progress.seconds_left()
        return self._beat.replace(
            updated=time.time(), stage=progress.title,
            ended=progress.ended, failed=progress.failed, count=progress.count,
            calls=sum(tally.calls for ledger in ledgers for tally in list(ledger.paid.values())), tokens=costs.tokens,
            usd=round(costs.dollars, 6) or None, seconds_left=None if left is None else round(left),
        )  # fmt: skip


def command_line() -> str:
    """Return the command of this process, ready to paste into a shell, or "" in another program."""
    program = Path(sys.argv[0])
    is_kgqa = program.name == "kgqa" or (
        program.parent.name == "kgqa" and program.name == "__main__.py"
    )
    return shlex.join(["kgqa", *sys.argv[1:]]) if is_kgqa else ""


@contextmanager
def work_log(folder: Path) -> Iterator[None]:
    """Write the log of this block to the folder."""
    # the first answer that is written there raises the error
    with suppress(OSError):
        ensure_dir(folder)
    handler, loggers, level = (
        WorkLog(folder / LOG),
        (logging.getLogger("kgqa"), EVENTS),
        EVENTS.level,
    )
    EVENTS.propagate = False  # many lines, not for users
    EVENTS.setLevel(logging.DEBUG)
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        EVENTS.setLevel(level)
        for logger in loggers:
            logger.removeHandler(handler)
        handler.close()


def log_event(event: str, message: str, *, level: int = logging.INFO, **fields: Json) -> None:
    """Write a line to all open logs."""
    EVENTS.log(level, "%s", message, extra={"fields": {"event": event, **fields}})


class WorkLog(RotatingFileHandler):
    """Writes records as lines of JSON without secrets."""

    def __init__(self, file: Path) -> None:
        super().__init__(file, maxBytes=LARGEST, backupCount=OLDER, encoding="utf-8", delay=True)

    def close(self) -> None:
        with suppress(OSError):
            super().close()

    def _open(self) -> TextIO:  # type: ignore[override]
        return open_to_append(Path(self.baseFilename))

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Json] = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(
                timespec="milliseconds"
            ),
            "level": record.levelname.lower(),
            "event": "line",
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        # ASCII, so that a line cannot move a terminal's cursor
        return redact(json.dumps(line, default=str))

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Ignore a log that cannot be written. Work continues without it."""
