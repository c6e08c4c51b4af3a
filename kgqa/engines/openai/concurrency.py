"""Limit the parallel calls to a server, and what one command can spend there."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field

from kgqa.engines.weights import Prices
from kgqa.errors import BudgetSpent, ConfigError
from kgqa.types import Usage

INITIAL_LIMIT = 32
MAX_LIMIT = 1024  # connections
STEP = 3  # calls that a fast reply adds
GROWTH = 1.5  # times the limit at which a call started: its reply shows nothing of higher ones
QUEUED = 2  # times the least seconds per token: the call has waited at the server
PROMPT_WORK = 8  # tokens of a reply that take a server as long as reading a prompt
FULL = 0.9  # of the limit in use: fewer calls do not show whether more would help
BACKOFF = 0.7  # of the limit is left after a refusal for too many requests


@dataclass
class AdaptiveLimiter:
    """The maximum number of parallel calls. It belongs to one event loop; `limit` can be read from any thread.

    Unless the number is configured, or the server reports it, each reply that has not waited at the server raises it.
    """

    limit: int
    adapts: bool
    _running: int = 0
    _fastest: float = math.inf  # seconds per token

    @classmethod
    def of(cls, concurrency: int | None) -> AdaptiveLimiter:
        return cls(INITIAL_LIMIT, adapts=True) if concurrency is None else cls(concurrency, adapts=False)

    def set_slots(self, slots: object) -> None:
        """Use the number of parallel calls that the server reports."""
        if self.adapts and isinstance(slots, int) and slots > 0:
            self.limit, self.adapts = min(slots, MAX_LIMIT), False

    def acquire(self) -> int:
        """Start a call. Return the limit, for `release`."""
        self._running += 1
        return self.limit

    def release(self, limit: int, seconds: float | None, tokens: int = 0) -> None:
        """Finish a call with a reply of so many tokens; seconds=None: without a reply."""
        is_full = self._running >= FULL * self.limit
        self._running -= 1
        if seconds is None or not self.adapts:
            return
        pace = seconds / (tokens + PROMPT_WORK)
        self._fastest = min(self._fastest, pace)
        if is_full and pace <= QUEUED * self._fastest:
            self.limit = max(self.limit, min(self.limit + STEP, round(GROWTH * limit), MAX_LIMIT))

    def on_rate_limited(self) -> None:
        """Lower the limit for good. Of many calls that the server refuses together, the first counts."""
        if self.adapts:
            self.limit, self.adapts = max(1, round(BACKOFF * self.limit)), False


@dataclass
class Budget:
    """The spending limit of one command at a server. Whatever the server charges counts. It belongs to one event loop.

    Calls in progress when the budget is spent are finished and paid. The error that stops the run is raised after the
    last of them, so that all paid replies are saved.
    """

    tokens: int | None  # of prompts and replies
    dollars: float | None
    prices: Prices | None
    spent_tokens: int = 0
    spent_dollars: float = 0.0
    _running: int = 0
    _idle: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        if self.dollars is not None and self.prices is None:
            raise ConfigError(
                f"engine.budget_usd={self.dollars}: the model has no prices. Set model.prices, or engine.budget_tokens"
            )

    async def acquire(self) -> None:
        """Start a call. If the budget is spent, wait for the calls in progress and raise BudgetSpent."""
        if spent := self._find_spent_key():
            while self._running:
                self._idle.clear()
                await self._idle.wait()
            raise BudgetSpent(
                f"{spent} is spent ({self.spent_tokens:,} tokens, {self.spent_dollars:.4f} USD by this "
                "command). All replies are saved. Run the command again with a higher budget"
            )
        self._running += 1

    def release(self) -> None:
        """Finish a call."""
        self._running -= 1
        if not self._running:
            self._idle.set()

    def spend(self, usage: Usage) -> None:
        """Count the usage of a reply."""
        self.spent_tokens += usage.prompt_tokens + usage.output_tokens
        if self.prices is not None:
            self.spent_dollars += self.prices.dollars(usage.prompt_tokens, usage.cached_tokens, usage.output_tokens)

    def _find_spent_key(self) -> str:
        """Return the key of the spent budget with its value; "" while there is some left."""
        if self.tokens is not None and self.spent_tokens >= self.tokens:
            return f"engine.budget_tokens={self.tokens}"
        if self.dollars is not None and self.spent_dollars >= self.dollars:
            return f"engine.budget_usd={self.dollars}"
        return ""
