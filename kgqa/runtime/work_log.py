"""The log of long work: `log.jsonl` in its folder, one JSON object per line.

It uses Python's logging. Lines for users go to the logger "kgqa" and its children. Other events go to EVENTS, with
fields as `extra={"fields": {"event": …}}`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from logging.handlers import RotatingFileHandler
from pathlib import Path

from kgqa.types import Json
from kgqa.util.fs import ensure_dir
from kgqa.util.redaction import redact

LOG = "log.jsonl"
LARGEST = 4_000_000  # bytes of one file
OLDER = 4  # older files: log.jsonl.1 is the newest of them
EVENTS = logging.getLogger("kgqa.events")


@contextmanager
def work_log(folder: Path) -> Iterator[None]:
    """Write the log of this block to the folder."""
    with suppress(OSError):  # the first answer that is written there raises the error
        ensure_dir(folder)
    handler, loggers, level = WorkLog(folder / LOG), (logging.getLogger("kgqa"), EVENTS), EVENTS.level
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

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Json] = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": "line",
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        return redact(json.dumps(line, default=str))  # ASCII, so that a line cannot move a terminal's cursor

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Ignore a log that cannot be written. Work continues without it."""
