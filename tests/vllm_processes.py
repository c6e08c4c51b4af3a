"""vLLM's processes, and whether they are gone."""

from __future__ import annotations

import time
from collections.abc import Sequence

import psutil


def below(process: int | None = None) -> list[psutil.Process]:
    """Living processes of vLLM below this process, or below another."""
    return [
        each for each in psutil.Process(process).children(recursive=True) if _is_alive(each, "VLLM")
    ]


def gone(processes: Sequence[psutil.Process], seconds: float) -> bool:
    """Whether they have all ended after so many seconds at most."""
    deadline = time.monotonic() + seconds
    while any(_is_alive(each) for each in processes) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not any(_is_alive(each) for each in processes)


def _is_alive(process: psutil.Process, name: str = "") -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and str(process.name()).startswith(name)
    except psutil.NoSuchProcess:
        return False
