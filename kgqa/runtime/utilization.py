"""The utilization of an engine: how long and how fully it was used."""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

FULL = 0.9  # of the engine's capacity


class Usage(NamedTuple):
    """Sums over time, in seconds."""

    busy: float  # with at least one call
    calls: float  # times the calls in flight
    capacity: float  # times the calls that the engine takes at once, while it was busy
    full: float  # with at least `FULL` of the capacity in use


class Utilization:
    """Counts the calls that an engine works on, over time. Several threads can use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls = self._capacity = 0
        self._since = time.monotonic()
        self._usage = Usage(0.0, 0.0, 0.0, 0.0)

    def change(self, by: int, capacity: int) -> None:
        """Add `by` calls in flight. `capacity`: how many calls the engine takes at once now."""
        with self._lock:
            self._advance()
            self._calls, self._capacity = self._calls + by, capacity

    def usage(self) -> Usage:
        """Return the sums up to now."""
        with self._lock:
            self._advance()
            return self._usage

    def _advance(self) -> None:
        now = time.monotonic()
        if self._calls:
            seconds, before = now - self._since, self._usage
            self._usage = Usage(
                before.busy + seconds,
                before.calls + seconds * self._calls,
                before.capacity + seconds * self._capacity,
                before.full + seconds * (self._calls >= FULL * self._capacity),
            )
        self._since = now
