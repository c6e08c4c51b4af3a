"""Limit the parallel calls to a server, and the tokens and dollars that one command can spend there."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field

from kgqa.engines.weights import Prices
from kgqa.errors import ConfigError
from kgqa.types import Usage

INITIAL_LIMIT = 32
# of vLLM and SGLang: they work on more calls together, and queue all others
QUEUING_LIMIT = 128
MAX_LIMIT = 1024  # connections
# times the work per second at half of the limit: a higher limit would help
GAIN = 1.15
# share of the limit, and a number of calls: the least calls that show the work per second at this limit
SAMPLE = 0.125
LEAST = 16
# samples of a limit, because some calls are unusual
SAMPLES = 3
# times the fastest seconds of the same work: the calls wait for each other at the server
QUEUED = 6
# output tokens that take as long as reading a prompt
PROMPT_WORK = 8
# share of the limit in use that shows whether more calls would help
FULL = 0.9
# seconds
TINY = 1e-9
# factor for the limit after an error for too many requests
BACKOFF = 0.7


@dataclass
class AdaptiveLimiter:
    """The maximum number of parallel calls. It belongs to one event loop. `limit` can be read from any thread.

    It is doubled while the server does more work per second than with half of the calls, unless it is configured or
    reported by the server.
    """

    limit: int = INITIAL_LIMIT
    adapts: bool = True
    _running: int = 0
    _idle: asyncio.Event = field(default_factory=asyncio.Event)
    # of the calls that started at this limit
    _calls: int = 0
    _work: float = 0.0
    _seconds: float = 0.0
    # samples of this limit
    _samples: int = 0
    # work per second at half of the limit
    _rate: float = 0.0
    # seconds of a unit of work
    _fastest: float = math.inf

    @classmethod
    def of(cls, concurrency: int | None, initial: int = INITIAL_LIMIT) -> AdaptiveLimiter:
        return cls(initial) if concurrency is None else cls(concurrency, adapts=False)

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
        if not self._running:
            self._idle.set()
        if seconds is None or not self.adapts:
            return
        work = tokens + PROMPT_WORK
        self._fastest = min(self._fastest, seconds / work)
        if is_full and limit == self.limit and self._samples < SAMPLES:
            self._calls += 1
            self._work += work
            self._seconds += seconds
            if self._calls >= max(LEAST, SAMPLE * limit):
                self._compare(self._work / max(self._seconds, TINY))

    def _compare(self, speed: float) -> None:
        """Raise the limit if a sample shows that more calls do more work. speed: work per second of a call."""
        self._calls, self._work, self._seconds = 0, 0.0, 0.0
        self._samples += 1
        rate = self.limit * speed
        if rate >= GAIN * self._rate and speed * QUEUED * self._fastest >= 1:
            self.limit, self._rate, self._samples = min(2 * self.limit, MAX_LIMIT), rate, 0

    async def drain(self) -> None:
        """Wait until no call is in progress."""
        while self._running:
            self._idle.clear()
            await self._idle.wait()

    def on_rate_limited(self) -> None:
        """Lower the limit permanently, and only once: a server rejects many calls together."""
        if self.adapts:
            self.limit, self.adapts = max(1, round(BACKOFF * self.limit)), False


@dataclass
class ServerBudget:
    """The spending limit of one command at a server."""

    tokens: int | None = None  # of prompts and replies
    dollars: float | None = None
    prices: Prices | None = None
    spent_tokens: int = 0
    spent_dollars: float = 0.0

    def __post_init__(self) -> None:
        if self.dollars is not None and self.prices is None:
            raise ConfigError(
                f"engine.budget_usd={self.dollars}: the model has no prices. Set model.prices, or engine.budget_tokens"
            )

    def spend(self, usage: Usage) -> None:
        """Count the usage of a reply."""
        self.spent_tokens += usage.tokens
        if self.prices is not None:
            self.spent_dollars += self.prices.dollars(
                usage.prompt_tokens, usage.cached_tokens, usage.output_tokens
            )

    def explain_spent(self) -> str:
        """Return the message for a spent budget, or "" while some of it is left."""
        budgets = {
            "tokens": (self.tokens, self.spent_tokens),
            "usd": (self.dollars, self.spent_dollars),
        }
        limits = [
            f"engine.budget_{unit}={most}"
            for unit, (most, used) in budgets.items()
            if most and used >= most
        ]
        if not limits:
            return ""
        return (
            f"{limits[0]} is spent ({self.spent_tokens:,} tokens, {self.spent_dollars:.4f} USD by this command). "
            "All replies are saved. Run the command again with a higher budget"
        )
