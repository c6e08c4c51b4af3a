"""A limit on what one command may spend at a server."""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import dataclass, field

from kgqa.engines.weights import Prices
from kgqa.errors import BudgetSpent, ConfigError
from kgqa.types import Usage

events = logging.getLogger("kgqa.events")  # see kgqa.runtime.work_log


@dataclass
class Budget:
    """Spent by every reply, failed calls and the cache's replies are free. Belongs to one event loop.

    Calls under way when the limit is reached are finished and paid, so it is exceeded by at most those. The error
    that stops the run is raised after the last of them has been delivered: whatever was paid for is kept.
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
                f"engine.budget_usd={self.dollars}: the model has no prices; set model.prices, or engine.budget_tokens"
            )

    async def enter(self) -> None:
        """Begin a call. Raises BudgetSpent, once nothing is under way, if the budget is spent."""
        if self._spend():
            while self._running:
                self._idle.clear()
                await self._idle.wait()
            raise BudgetSpent(
                f"{self._spend()} is spent ({self.spent_tokens:,} tokens, {self.spent_dollars:.4f} USD by this "
                "command); everything answered is saved, the same command goes on with a raised budget"
            )
        self._running += 1

    def leave(self) -> None:
        """End a call, after its reply was delivered."""
        self._running -= 1
        if not self._running:
            self._idle.set()

    def spend(self, usage: Usage) -> None:
        before = self._share()
        self.spent_tokens += usage.prompt_tokens + usage.output_tokens
        if self.prices is not None:
            self.spent_dollars += self.prices.dollars(usage.prompt_tokens, usage.cached_tokens, usage.output_tokens)
        if int(10 * self._share()) > int(10 * before):  # another tenth of it
            told = {"event": "budget", "tokens": self.spent_tokens, "usd": round(self.spent_dollars, 6)}
            events.info("%.0f %% of the engine's budget is spent", 100 * self._share(), extra={"fields": told})

    def _share(self) -> float:
        """Return the share of the budget that is nearer to its end; 0 without one."""
        return max(self.spent_tokens / (self.tokens or math.inf), self.spent_dollars / (self.dollars or math.inf))

    def _spend(self) -> str:
        """Return the key of the budget that is spent, with its value; "" while there is some left."""
        if self.tokens is not None and self.spent_tokens >= self.tokens:
            return f"engine.budget_tokens={self.tokens}"
        if self.dollars is not None and self.spent_dollars >= self.dollars:
            return f"engine.budget_usd={self.dollars}"
        return ""
