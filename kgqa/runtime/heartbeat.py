"""The heartbeat of long work: a small file below `outputs/.running` that says how far it is, for `kgqa runs --running`.

Each folder that is worked on has one file. It is removed when the work ends. A process that is killed leaves its file
behind without new heartbeats, and the same command takes it over.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from kgqa.artifacts.schema import Artifact, Number, read
from kgqa.errors import DataError
from kgqa.types import Json
from kgqa.util.fs import create_private, ensure_dir, json_text, outputs, text_digest

STOPPED = 60.0  # seconds without a heartbeat after which work counts as stopped
FORGOTTEN = 7 * 86_400.0  # seconds after which it is no longer shown


class Heartbeat(Artifact):
    """The progress of some work. Times are seconds since 1970.

    `ended`, `failed`, `count`: of what `stage` counts; a `count` of None is unknown, as is `usd` without a price.
    `waits_for`: what the work waits for, if anything. Sums of calls and tokens are of new (uncached) calls.
    """

    what: str  # run, sweep, kg build, index build, judge, verify
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
    per_minute: Number | None = None
    tokens_per_second: Number | None = None
    seconds_left: Number | None = None
    waits_for: str | None = None

    @property
    def file(self) -> Path:
        return _folder(None) / f"{text_digest(str(Path(self.folder).absolute()), 16)}.json"

    @property
    def is_running(self) -> bool:
        return time.time() - self.updated < STOPPED

    def describe(self) -> str:
        """Return the state in words."""
        if not self.is_running:
            return f"stopped: no heartbeat from {self.host} for {time.time() - self.updated:,.0f} s"
        return f"waits: {self.waits_for}" if self.waits_for else "running"

    def json(self) -> dict[str, Json]:  # type: ignore[override]
        """Return the fields and the state."""
        return {**super().json(), "state": "running" if self.is_running else "stopped"}

    def write(self) -> None:
        """Write the file. A disk that refuses costs the display of running work only."""
        with suppress(OSError):
            ensure_dir(self.file.parent)
            fresh = create_private(self.file.with_suffix(".new"))
            fresh.write_text(json_text(super().json()), encoding="utf-8", errors="backslashreplace")
            fresh.replace(self.file)

    def remove(self) -> None:
        with suppress(OSError):
            self.file.unlink()


def read_heartbeats(root: Path | None = None) -> list[Heartbeat]:
    """Return all work below `outputs/` or another folder, the oldest first."""
    beats = []
    for file in _folder(root).glob("*.json"):
        with suppress(DataError, OSError):  # the work ended meanwhile, or the file is damaged
            beat = read(Heartbeat, file)
            if time.time() - beat.updated > FORGOTTEN:
                file.unlink()
            else:
                beats.append(beat)
    return sorted(beats, key=lambda beat: (beat.started, beat.folder))


def _folder(root: Path | None) -> Path:
    return (root or outputs()) / ".running"
