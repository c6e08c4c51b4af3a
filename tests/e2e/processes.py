"""Runs in a process of their own, so that they can be killed."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from kgqa.types import Json

# of the one command that ended a run: how long it took, and what it asked that no earlier one had been told
OF_ONE_COMMAND = {
    *("seconds", "call_seconds", "queue_seconds", "question_seconds", "throughput"),
    # a prefix cache is its process's
    "cached_tokens",
    *("paid", "extraction_paid", "cache_hits"),
}


def started(arguments: Sequence[str], folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(
        [sys.executable, "-m", "kgqa", *arguments], cwd=folder, env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finish(running: subprocess.Popen[str], folder: Path) -> Path:
    """Wait for a run that must succeed. Return its folder."""
    out, err = running.communicate(timeout=600)
    assert running.returncode == 0, err
    return folder / out.strip().splitlines()[-1]


def replies_kept(folder: Path) -> int:
    file = folder / "outputs/.cache/calls.sqlite"
    if not file.exists():
        return 0
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as cache:
        try:
            return int(cache.execute("SELECT count(*) FROM calls").fetchone()[0])
        except sqlite3.OperationalError:  # not yet created
            return 0


def wait_for_replies(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 240
    while replies_kept(folder) < count and time.monotonic() < deadline:
        time.sleep(0.02)
    assert replies_kept(folder) >= count


def kill_after(replies: int, arguments: Sequence[str], folder: Path) -> int:
    """Kill a run that has so many replies in its call cache. Return how many the cache has then."""
    running = started(arguments, folder)
    wait_for_replies(folder, replies)
    running.kill()
    running.communicate(timeout=60)
    assert running.returncode == -signal.SIGKILL
    return replies_kept(folder)


def files_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return the content and the time of each file, to see that a command leaves them."""
    return {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in folder.iterdir()}


def lasting(run: Path) -> tuple[bytes, Json]:
    """Return the predictions and metrics of a run without what belongs to the command that finished it.

    They are the same however often the run was killed on the way.
    """
    return (run / "predictions.jsonl").read_bytes(), _lasting(
        json.loads((run / "metrics.json").read_bytes())
    )


def _lasting(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _lasting(below) for key, below in value.items() if key not in OF_ONE_COMMAND}
    return [_lasting(below) for below in value] if isinstance(value, list) else value
