"""Facts about this machine that every layer can use."""

from __future__ import annotations

import os


def count_cores() -> int:
    """Count the cores that this process can use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
