"""Runs in a process of their own, so that they can be killed."""

from __future__ import annotations

import json
import os
import resource
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
    "cached_tokens",  # a prefix cache is its process's
    *("paid", "extraction_paid", "cache_hits"),
}
KILLED_AT_FILE = """
import os, signal, sys
from kgqa.cli.main import main
left, replace = int(sys.argv[1]), os.replace
def replace_or_die(*files, **folders):
    global left
    left -= "outputs/.running/" not in str(files[0])  # claims come every two seconds
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(*files, **folders)
os.replace = replace_or_die
sys.exit(main(sys.argv[2:]))
"""


def started(arguments: Sequence[str], folder: Path, file_limit: int | None = None) -> subprocess.Popen[str]:
    """`kgqa` with these arguments in a folder; `file_limit`: the largest file it may write, in bytes."""

    def limited() -> None:
        if file_limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))

    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(
        [sys.executable, "-m", "kgqa", *arguments], cwd=folder, env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=limited,
    )  # fmt: skip


def killed_at_file(count: int, arguments: Sequence[str], folder: Path) -> tuple[int, str]:
    """Run `kgqa`, killed as it is about to give a file its name, the `count`th; its exit code and output.

    Claims, of which there are as many as the run takes time, do not count.
    """
    command = [sys.executable, "-c", KILLED_AT_FILE, str(count), *arguments]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout


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


def lasting(run: Path) -> tuple[bytes, Json]:
    """Return the predictions and metrics of a run without what belongs to the command that finished it.

    They are the same however often the run was killed on the way.
    """
    return (run / "predictions.jsonl").read_bytes(), _lasting(json.loads((run / "metrics.json").read_bytes()))


def _lasting(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _lasting(below) for key, below in value.items() if key not in OF_ONE_COMMAND}
    return [_lasting(below) for below in value] if isinstance(value, list) else value
