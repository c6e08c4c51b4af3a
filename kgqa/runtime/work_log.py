"""The log of long work: `log.jsonl` in its folder, one JSON object per line.

Everything comes through Python's logging. Lines that users see go to the logger "kgqa" and its children. Events that
are only for the log go to EVENTS, with fields as `extra={"fields": {"event": …}}`.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from kgqa.types import Json
from kgqa.util.fs import create_private, ensure_dir
from kgqa.util.redaction import redact_urls, secret_variables

LOG = "log.jsonl"
LARGEST = 4_000_000  # bytes of one file
OLDER = 4  # older files: log.jsonl.1 is the last one before
REPEATED = 30.0  # seconds in which the same trouble of many calls is one line
EVENTS = logging.getLogger("kgqa.events")


@contextmanager
def work_log(folder: Path, *listeners: logging.Handler) -> Iterator[None]:
    """Write what is logged while the block runs to the folder, and pass it to the listeners."""
    with suppress(OSError):  # whoever writes answers there raises the error
        ensure_dir(folder)
    handlers = [WorkLog(folder / LOG), *listeners]
    loggers, level = (logging.getLogger("kgqa"), EVENTS), EVENTS.level
    EVENTS.propagate = False  # many lines, not for users
    EVENTS.setLevel(logging.DEBUG)
    pairs = [(logger, handler) for logger in loggers for handler in handlers]
    for logger, handler in pairs:
        logger.addHandler(handler)
    try:
        yield
    finally:
        EVENTS.setLevel(level)
        for logger, handler in pairs:
            logger.removeHandler(handler)
        for handler in handlers:
            handler.close()


def log_event(event: str, message: str, *, level: int = logging.INFO, **fields: Json) -> None:
    """Write a line to the logs that are open."""
    EVENTS.log(level, "%s", message, extra={"fields": {"event": event, **fields}})


class WorkLog(RotatingFileHandler):
    """Writes the lines. A trouble that repeats within REPEATED seconds is counted, and its next line has the count."""

    def __init__(self, file: Path) -> None:
        super().__init__(file, maxBytes=LARGEST, backupCount=OLDER, encoding="utf-8", delay=True)
        self._repeats: dict[tuple[Json, Json], tuple[float, int]] = {}  # when it was last written, and repeats since
        self._secrets = [(name, json.dumps(value.strip())[1:-1]) for name, value in secret_variables().items()]

    def _open(self) -> TextIOWrapper:
        create_private(Path(self.baseFilename))
        return super()._open()

    def close(self) -> None:
        with suppress(OSError):
            super().close()

    def emit(self, record: logging.LogRecord) -> None:
        fields = getattr(record, "fields", {})
        if "cause" in fields:
            key, now = (fields["event"], fields["cause"]), time.monotonic()
            last, times = self._repeats.get(key, (-REPEATED, 0))
            if now - last < REPEATED:
                self._repeats[key] = last, times + 1
                return
            self._repeats[key], record.times = (now, 0), times + 1
        super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Json] = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": "line",
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if (times := getattr(record, "times", 1)) > 1:
            line["times"] = times
        text = json.dumps(line, default=str)  # ASCII, so that a line cannot move a terminal's cursor
        for name, secret in self._secrets:
            text = text.replace(secret, f"[{name}]")
        return redact_urls(text)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Ignore a log that cannot be written: it stops no work."""
