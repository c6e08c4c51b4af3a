"""Limit the parallel calls to a server, and the tokens and dollars that one command can spend there."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field

from kgqa.engines.weights import Prices
from kgqa.errors import ConfigError
from kgqa.types import Usage

INITIAL_LIMIT = 32
MAX_LIMIT = 1024  # connections
# calls that a fast reply adds
STEP = 3
# times the limit when a call started: its reply says nothing about higher limits
GROWTH = 1.5
# times the fastest seconds per token: the call has waited at the server
QUEUED = 2
# output tokens that take as long as reading a prompt
PROMPT_WORK = 8
# share of the limit in use that shows whether more calls would help
FULL = 0.9
# factor for the limit after an error for too many requests
BACKOFF = 0.7


@dataclass
class AdaptiveLimiter:
    """The maximum number of parallel calls. It belongs to one event loop. `limit` can be read from any thread.

    Each reply that has not waited at the server raises it, unless it is configured or reported by the server.
    """

    limit: int = INITIAL_LIMIT
    adapts: bool = True
    _running: int = 0
    _fastest: float = math.inf  # seconds per token
    _idle: asyncio.Event = field(default_factory=asyncio.Event)

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
        if not self._running:
            self._idle.set()
        if seconds is None or not self.adapts:
            return
        pace = seconds / (tokens + PROMPT_WORK)
        self._fastest = min(self._fastest, pace)
        if is_full and pace <= QUEUED * self._fastest:
            self.limit = max(self.limit, min(self.limit + STEP, round(GROWTH * limit), MAX_LIMIT))

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
