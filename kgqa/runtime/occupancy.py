"""How much of the time an engine had calls to work on, and how many."""

from __future__ import annotations

import threading
import time


class Occupancy:
    """Counts the calls that an engine is working on, over time. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls = 0
        self._since = time.monotonic()
        self._busy = self._call_seconds = 0.0

    def change(self, by: int) -> None:
        """The engine has so many calls more, or fewer."""
        with self._lock:
            self._advance()
            self._calls += by

    def measured(self) -> tuple[float, float]:
        """Seconds with at least one call, and the sum of all calls' seconds."""
        with self._lock:
            self._advance()
            return self._busy, self._call_seconds

    def _advance(self) -> None:
        now = time.monotonic()
        if self._calls:
            self._busy += now - self._since
            self._call_seconds += self._calls * (now - self._since)
        self._since = now
