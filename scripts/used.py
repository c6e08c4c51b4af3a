"""What a command takes: for the benchmarks that run one in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

LOOK = 0.1  # seconds between two looks at its memory


class Used(NamedTuple):
    """By a process that ended well, its start included."""

    mebibytes: float  # at its peak
    cpu: float  # seconds, of user and system
    seconds: float  # by the clock


def used(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> Used:
    """Its output goes nowhere.

    The system's own count of a child's peak begins with what the parent had when it started the child; so the child's
    is read while it runs.

    Raises:
        SystemExit: it did not end well; with the end of what it said.
    """
    peak, begun = 0.0, time.monotonic()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **(environment or {})}, stdout=subprocess.DEVNULL, stderr=errors
        )
        while True:
            peak = max(peak, _peak(process.pid))
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
            if ended:
                break
            time.sleep(LOOK)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            said = errors.read().decode("utf-8", "replace")[-2000:]
            raise SystemExit(f"{said}\n{' '.join(command)} ended with {process.returncode}")
    return Used(peak, usage.ru_utime + usage.ru_stime, time.monotonic() - begun)


def _peak(process: int) -> float:
    """Mebibytes so far; 0 once it has ended."""
    try:
        told = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    except OSError:
        return 0.0
    found = re.search(r"^VmHWM:\s+(\d+) kB", told, re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0
