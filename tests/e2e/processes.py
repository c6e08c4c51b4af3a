"""Runs in a process of their own, so that they can be killed."""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path


def started(arguments: Sequence[str], folder: Path, file_limit: int | None = None) -> subprocess.Popen[str]:
    """`kgqa` with these arguments in a folder; `file_limit`: the largest file it may write, in bytes."""

    def limited() -> None:
        if file_limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))

    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(
        [sys.executable, "-m", "kgqa.cli", *arguments], cwd=folder, env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=limited,
    )  # fmt: skip


def replies_kept(folder: Path) -> int:
    """Replies in the call cache of a run that may be going on."""
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
