"""How much of the time an engine had calls to work on, how many, and for how long its places were the limit."""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

FULL = 0.9  # of the places taken


class Occupied(NamedTuple):
    """Seconds."""

    busy: float  # with at least one call
    calls: float  # of all calls together
    places: float  # of all places together, while there was a call
    full: float  # with at least `FULL` of the places taken


class Occupancy:
    """Counts the calls that an engine is working on, over time. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls = self._places = 0
        self._since = time.monotonic()
        self._occupied = Occupied(0.0, 0.0, 0.0, 0.0)

    def change(self, by: int, places: int) -> None:
        """The engine has so many calls more, or fewer, and takes so many at once."""
        with self._lock:
            self._advance()
            self._calls, self._places = self._calls + by, places

    def measured(self) -> Occupied:
        with self._lock:
            self._advance()
            return self._occupied

    def _advance(self) -> None:
        now = time.monotonic()
        if self._calls:
            passed, so_far = now - self._since, self._occupied
            self._occupied = Occupied(
                so_far.busy + passed,
                so_far.calls + passed * self._calls,
                so_far.places + passed * self._places,
                so_far.full + passed * (self._calls >= FULL * self._places),
            )
        self._since = now
