"""The log of long work: `log.jsonl` in its folder, one JSON object a line, for whoever looks after it.

What happens is told through Python's logging: lines that people see go to the logger "kgqa" and its children, what is
for the log alone to EVENTS, with fields as `extra={"told": {"event": …}}`. A log is no part of a run's identity nor of
what equal runs have in common.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from kgqa.redaction import secrets, without_credentials
from kgqa.storage import begun, made
from kgqa.types import Json

LOG = "log.jsonl"
LARGEST = 4_000_000  # bytes of one file
OLDER = 4  # files kept beside it: log.jsonl.1 is the last one before
REPEATED = 30.0  # seconds in which the same trouble of many calls is one line
EVENTS = logging.getLogger("kgqa.events")


@contextmanager
def work_log(folder: Path, *listeners: logging.Handler) -> Iterator[None]:
    """Everything told while the block runs is kept in the folder and told to the listeners, too."""
    with suppress(OSError):  # what keeps answers there refuses by itself
        made(folder)
    everyone = [WorkLog(folder / LOG), *listeners]
    loggers, before = (logging.getLogger("kgqa"), EVENTS), EVENTS.level
    EVENTS.propagate = False  # to nobody but logs: many lines, and none for people
    EVENTS.setLevel(logging.DEBUG)
    for logger in loggers:
        for each in everyone:
            logger.addHandler(each)
    try:
        yield
    finally:
        EVENTS.setLevel(before)
        for logger in loggers:
            for each in everyone:
                logger.removeHandler(each)
        for each in everyone:
            each.close()


def tell(event: str, message: str, *, level: int = logging.INFO, **fields: Json) -> None:
    """A line of the logs that are open."""
    EVENTS.log(level, "%s", message, extra={"told": {"event": event, **fields}})


class WorkLog(RotatingFileHandler):
    """A trouble that comes again within REPEATED seconds is counted, and the count stands in its next line."""

    def __init__(self, file: Path) -> None:
        super().__init__(file, maxBytes=LARGEST, backupCount=OLDER, encoding="utf-8", delay=True)
        self._told: dict[tuple[Json, Json], tuple[float, int]] = {}  # when it was last written, how often it came since
        self._hidden = _secrets()

    def _open(self) -> TextIOWrapper:
        begun(Path(self.baseFilename))
        return super()._open()

    def close(self) -> None:
        with suppress(OSError):  # of what the disk did not take before; see `handleError`
            super().close()

    def emit(self, record: logging.LogRecord) -> None:
        told = _told(record)
        if "cause" in told and (again := self._again(told)):
            record.times = again
        elif "cause" in told:
            return
        super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        fields = _told(record)
        line: dict[str, Json] = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": fields.get("event", "line"),
            "message": record.getMessage(),
            **fields,
        }
        if (times := getattr(record, "times", 1)) > 1:
            line["times"] = times
        # ASCII, so that nothing in it moves a terminal's cursor
        return self.hide(json.dumps(line, default=str))

    def hide(self, text: str) -> str:
        """The text with the name of an environment variable where its secret stood."""
        for name, secret in self._hidden:
            text = text.replace(secret, f"[{name}]")
        return without_credentials(text)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """A log that cannot be written stops no work: what keeps answers refuses by itself."""

    def _again(self, told: Mapping[str, Json]) -> int:
        """How often the trouble came since it was last written; 0: it is not to be written now."""
        key, now = (told["event"], told["cause"]), time.monotonic()
        last, times = self._told.get(key, (-REPEATED, 0))
        due = now - last >= REPEATED
        self._told[key] = (now, 0) if due else (last, times + 1)
        return times + 1 if due else 0


def _told(record: logging.LogRecord) -> dict[str, Json]:
    return getattr(record, "told", {})


def _secrets() -> list[tuple[str, str]]:
    """As JSON writes them."""
    return [(name, json.dumps(value.strip())[1:-1]) for name, value in secrets().items()]
