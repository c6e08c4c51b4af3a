"""Run a command in its own process and measure its CPU time, wall time and peak memory."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
# seconds between two looks at the memory of the process
POLL = 0.1


class Usage(NamedTuple):
    """Resources of one process, start included. `cpu` and `wall` in seconds, `mebibytes` at its peak."""

    mebibytes: float
    cpu: float
    wall: float


def measure_command(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str] | None = None,
    expected_code: int = 0,
) -> Usage:
    """Run `command` in `folder` and return what it used.

    The peak is read while the process runs, because the peak that the system reports for a finished child starts with
    the memory of its parent.

    Raises:
        SystemExit: The command ended with another exit code.
    """
    peak, start = 0.0, time.monotonic()
    variables = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "KGQA_CACHE": str(folder / "cache"),
        **(environment or {}),
    }
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, cwd=folder, env=variables, stdout=subprocess.DEVNULL, stderr=errors
        )
        while True:
            peak = max(peak, _read_peak(process.pid))
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            time.sleep(POLL)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != expected_code:
            errors.seek(0)
            text = errors.read().decode("utf-8", "replace")[-2000:]
            raise SystemExit(
                f"{text}\n{' '.join(command)} ended with exit code {process.returncode}"
            )
    return Usage(peak, usage.ru_utime + usage.ru_stime, time.monotonic() - start)


def _read_peak(pid: int) -> float:
    """Return the peak memory of a process in MiB, or 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0.0
    match = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return int(match[1]) / 1024 if match else 0.0
