"""Limit the tokens and dollars that one command can spend at a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from kgqa.engines.weights import Prices
from kgqa.errors import BudgetSpent, ConfigError
from kgqa.types import Usage


@dataclass
class Budget:
    """The spending limit of one command at a server. It belongs to one event loop.

    When the budget is spent, calls in progress are finished and paid. The error is raised after the last of them, so
    that all paid replies are saved.
    """

    tokens: int | None = None  # of prompts and replies
    dollars: float | None = None
    prices: Prices | None = None
    spent_tokens: int = 0
    spent_dollars: float = 0.0
    _running: int = 0
    _idle: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        if self.dollars is not None and self.prices is None:
            raise ConfigError(
                f"engine.budget_usd={self.dollars}: the model has no prices. Set model.prices, or engine.budget_tokens"
            )

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Run one call. If the budget is spent, wait for the calls in progress and raise BudgetSpent."""
        budgets = {"tokens": (self.tokens, self.spent_tokens), "usd": (self.dollars, self.spent_dollars)}
        spent = [f"engine.budget_{unit}={most}" for unit, (most, used) in budgets.items() if most and used >= most]
        if spent:
            while self._running:
                self._idle.clear()
                await self._idle.wait()
            raise BudgetSpent(
                f"{spent[0]} is spent ({self.spent_tokens:,} tokens, {self.spent_dollars:.4f} USD by this "
                "command). All replies are saved. Run the command again with a higher budget"
            )
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    def spend(self, usage: Usage) -> None:
        """Count the usage of a reply."""
        self.spent_tokens += usage.tokens
        if self.prices is not None:
            self.spent_dollars += self.prices.dollars(usage.prompt_tokens, usage.cached_tokens, usage.output_tokens)
