"""Limit the parallel calls to a server."""

from __future__ import annotations

import math
from dataclasses import dataclass

INITIAL_LIMIT = 32
MAX_LIMIT = 1024  # connections
STEP = 3  # calls that a fast reply adds
GROWTH = 1.5  # times the limit when a call started: its reply says nothing about higher limits
QUEUED = 2  # times the fastest seconds per token: the call has waited at the server
PROMPT_WORK = 8  # output tokens that take as long as reading a prompt
FULL = 0.9  # share of the limit in use that shows whether more calls would help
BACKOFF = 0.7  # factor for the limit after an error for too many requests


@dataclass
class AdaptiveLimiter:
    """The maximum number of parallel calls. It belongs to one event loop. `limit` can be read from any thread.

    Each reply that has not waited at the server raises it, unless it is configured or reported by the server.
    """

    limit: int = INITIAL_LIMIT
    adapts: bool = True
    _running: int = 0
    _fastest: float = math.inf  # seconds per token

    @classmethod
    def of(cls, concurrency: int | None) -> AdaptiveLimiter:
        return cls() if concurrency is None else cls(concurrency, adapts=False)

    def set_slots(self, slots: object) -> None:
        """Use the number of parallel calls that the server reports."""
        if self.adapts and isinstance(slots, int) and slots > 0:
            self.limit, self.adapts = min(slots, MAX_LIMIT), False

    def acquire(self) -> int:
        """Start a call. Return the limit, for `release`."""
        self._running += 1
        return self.limit

    def release(self, limit: int, seconds: float | None, tokens: int = 0) -> None:
        """Finish a call with a reply of `tokens` tokens. seconds=None: without a reply."""
        is_full = self._running >= FULL * self.limit
        self._running -= 1
        if seconds is None or not self.adapts:
            return
        pace = seconds / (tokens + PROMPT_WORK)
        self._fastest = min(self._fastest, pace)
        if is_full and pace <= QUEUED * self._fastest:
            self.limit = max(self.limit, min(self.limit + STEP, round(GROWTH * limit), MAX_LIMIT))

    def on_rate_limited(self) -> None:
        """Lower the limit permanently, and only once: a server rejects many calls together."""
        if self.adapts:
            self.limit, self.adapts = max(1, round(BACKOFF * self.limit)), False
