"""`budget=`: what a command may pay for models, in US dollars or in tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from kgqa.config.files import Config
from kgqa.errors import ConfigError
from kgqa.runtime.costs import Spent
from kgqa.types import Json


@dataclass
class Budget:
    """Paid for by this command's calls; cached replies are free, and so is what runs on your own machine in dollars."""

    tokens: int | None  # of prompts and replies
    dollars: float | None
    paid: Spent = field(default_factory=Spent)
    exhausted: bool = False  # an engine stopped in between

    @classmethod
    def of(cls, value: str) -> Budget:
        """Return `2.50usd` or `500000tokens`. Raises ConfigError for anything else."""
        amount = re.fullmatch(r"(\d[\d_]*(?:\.\d+)?) ?(usd|tokens)", value.strip().lower())
        if not amount or (amount[2] == "tokens" and "." in amount[1]) or not float(amount[1]):
            raise ConfigError(f"budget={value}: expected dollars or tokens, e.g. budget=2.50usd or budget=500000tokens")
        return cls(None, float(amount[1])) if amount[2] == "usd" else cls(int(amount[1]), None)

    def __str__(self) -> str:
        return f"{self.dollars:g}usd" if self.dollars is not None else f"{self.tokens}tokens"

    def so_far(self) -> str:
        return f"budget={self}, {self.paid.tokens:,} tokens and {self.paid.dollars:.4f} USD paid so far"

    def spent(self) -> bool:
        over_tokens = self.tokens is not None and self.paid.tokens >= self.tokens
        return self.exhausted or over_tokens or (self.dollars is not None and self.paid.dollars >= self.dollars)

    def pay(self, paid: Spent) -> None:
        """Count what a cell's calls, extractions and judge were paid for in this command."""
        self.paid += paid

    def left(self) -> Budget:
        return replace(
            self,
            tokens=None if self.tokens is None else max(1, self.tokens - self.paid.tokens),
            dollars=None if self.dollars is None else max(1e-6, self.dollars - self.paid.dollars),
        )


def limited(config: Config, allowance: Budget | None) -> dict[str, Json]:
    """Return the configuration with an engine that stops when the allowance is spent, if it is one that counts.

    An engine on this machine has no budget of its own: there the sweep stops between cells.
    """
    engine = config["engine"]
    if allowance is None or "budget_tokens" not in engine:
        return dict(config)
    if allowance.dollars is not None and config["model"].get("prices") is None:
        raise ConfigError(
            f"budget={allowance}: model={config['model']['name']} has no prices. Set model.prices or a budget in tokens"
        )
    own = {"budget_tokens": allowance.tokens, "budget_usd": allowance.dollars}
    smaller = {
        key: min((limit for limit in (engine[key], value) if limit is not None), default=None)
        for key, value in own.items()
    }
    return {**config, "engine": {**engine, **smaller}}
