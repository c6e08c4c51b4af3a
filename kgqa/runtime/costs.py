"""Count the costs of calls: those of the method as if the cache were empty, and those of new (paid) calls.

A call that failed without a charge is not paid. `budget=` limits what a command may pay, in US dollars or in tokens.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from kgqa.artifacts.metrics import Cost, Costs, Flagged, RoleCost
from kgqa.artifacts.schema import extend
from kgqa.calls import Choose, Generate, Rank
from kgqa.config.files import Config
from kgqa.config.overrides import override_values
from kgqa.errors import ConfigError
from kgqa.runtime.scheduler import CallRecord
from kgqa.types import Json, Usage

if TYPE_CHECKING:
    from kgqa.engines.weights import Prices

T = TypeVar("T")
PriceOf = Callable[[str], "Prices | None"]  # by role; None: unknown


@dataclass
class Tally:
    """Sums over model calls. A cached reply counts with the usage of the call that made it."""

    calls: int = 0
    usage: Usage = field(default_factory=Usage)
    # calls whose reply has a flag, see `Completion.flags`
    flags: Counter[str] = field(default_factory=Counter)
    failed: int = 0
    # replies from the cache
    hits: int = 0

    def add(self, record: CallRecord) -> None:
        """Count a call. A failed one has the usage that was charged for it."""
        self.calls += 1
        self.usage += _usage(record) or Usage()
        if isinstance(record.reply, Exception):
            self.failed += 1
        else:
            self.flags.update(set(record.reply.flags))
            self.hits += record.cached

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.calls + other.calls,
            self.usage + other.usage,
            self.flags + other.flags,
            self.failed + other.failed,
            self.hits + other.hits,
        )

    def cost(self, usd: float | None) -> RoleCost:
        """Return the sums in the form of `metrics.json`."""
        return RoleCost(
            calls=self.calls,
            failed=self.failed or None,
            prompt_tokens=self.usage.prompt_tokens,
            cached_tokens=self.usage.cached_tokens,
            output_tokens=self.usage.output_tokens,
            reasoning_tokens=self.usage.reasoning_tokens or None,
            seconds=round(self.usage.seconds, 3),
            usd=None if usd is None else round(usd, 6),
            flags={
                flag: Flagged(calls=calls, share=round(calls / self.calls, 4))
                for flag, calls in sorted(self.flags.items())
            },
        )


@dataclass(frozen=True, slots=True)
class Spent:
    """The tokens and dollars of paid calls. Calls without known prices count as 0 dollars."""

    tokens: int = 0  # of prompts and replies
    dollars: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.tokens + other.tokens, self.dollars + other.dollars)


@dataclass
class Ledger:
    """Costs by role, and the counts of a progress line."""

    # as if the cache were empty: the paper's cost
    method: dict[str, Tally] = field(default_factory=dict)
    paid: dict[str, Tally] = field(default_factory=dict)
    # that paid calls waited for their engines, in sum
    queue_seconds: float = 0.0
    # programs that have started
    starts: int = 0
    answered: Counter[str] = field(default_factory=Counter)  # by kind of call
    ranked_texts: int = 0
    hits: Counter[str] = field(default_factory=Counter)
    # of new calls that need no model
    seconds: dict[str, float] = field(default_factory=dict)
    price: PriceOf = lambda role: None  # noqa: ARG005 - no prices
    watch: Callable[[], None] = lambda: None  # called after each call

    def count_starts(self, programs: Iterable[T]) -> Iterator[T]:
        """Yield programs, and count each when the scheduler starts it."""
        for program in programs:
            self.starts += 1
            yield program

    def add(self, record: CallRecord) -> None:
        """Count a call. An inner one is not part of the method's cost, like those of the stage before the questions."""
        if not record.is_inner:
            kind = type(record.call).__name__
            self.answered[kind] += 1
            self.hits[kind] += record.cached
            if record.seconds:
                self.seconds[kind] = self.seconds.get(kind, 0.0) + record.seconds
        if isinstance(record.call, Rank):
            self.ranked_texts += len(record.call.texts)
        if isinstance(record.call, Generate | Choose):
            if not record.is_inner:
                self.method.setdefault(record.call.role, Tally()).add(record)
            if not record.cached and _usage(record):
                self.paid.setdefault(record.call.role, Tally()).add(record)
                self.queue_seconds += record.queued
        self.watch()

    def spent(self) -> Spent:
        """Return the sums of the paid calls."""
        paid = dict(self.paid)  # another thread adds roles
        dollars = (_dollars(tally, self.price(role)) or 0.0 for role, tally in paid.items())
        return Spent(total(paid.values()).usage.tokens, sum(dollars))

    def costs(self, questions: int) -> Costs:
        """Return the costs in the form of `metrics.json`, without dollars for roles with unknown prices."""
        prices = {role: self.price(role) for role in {**self.method, **self.paid}}
        return Costs(
            method=_cost(self.method, questions, prices),
            paid=_cost(self.paid, questions, prices).replace(
                queue_seconds=round(self.queue_seconds, 3)
            ),
        )


def _usage(record: CallRecord) -> Usage | None:
    """Return the usage that was charged for a call, or None."""
    usage: Usage | None = getattr(record.reply, "usage", None)
    return usage


def model_seconds(records: Iterable[CallRecord]) -> float:
    """Return the seconds that models worked on these calls, those of cached replies included, without inner calls."""
    calls = (
        record
        for record in records
        if isinstance(record.call, Generate | Choose) and not record.is_inner
    )
    usages = map(_usage, calls)
    return sum(usage.seconds for usage in usages if usage)


def total(tallies: Iterable[Tally]) -> Tally:
    """Return the sum of tallies."""
    return sum(tallies, Tally())


def _cost(
    tallies: Mapping[str, Tally], questions: int, prices: Mapping[str, Prices | None]
) -> Cost:
    everything = total(tallies.values())
    dollars = {role: _dollars(tally, prices[role]) for role, tally in tallies.items()}
    amounts = [usd for usd in dollars.values() if usd is not None]
    # Without calls, the cost is zero only if some price is known
    has_prices = bool(prices) and None not in prices.values()
    return extend(
        Cost,
        everything.cost(sum(amounts) if has_prices else None),
        calls_per_question=round(everything.calls / questions, 2) if questions else None,
        by_role={role: tally.cost(dollars[role]) for role, tally in sorted(tallies.items())},
    )


def _dollars(tally: Tally, prices: Prices | None) -> float | None:
    usage = tally.usage
    return (
        prices.dollars(usage.prompt_tokens, usage.cached_tokens, usage.output_tokens)
        if prices
        else None
    )


@dataclass
class Budget:
    """A limit of what a command pays. Cached replies are free, and in dollars also what runs on your own machine."""

    limit: float
    # usd, or tokens of prompts and replies
    unit: str
    paid: Spent = field(default_factory=Spent)
    exhausted: bool = False  # an engine stopped in between

    @classmethod
    def of(cls, value: str) -> Budget:
        """Return `2.50usd` or `500000tokens`. Raises ConfigError for anything else."""
        amount = re.fullmatch(r"(\d[\d_]*(?:\.\d+)?) ?(usd|tokens)", value.strip().lower())
        if not amount or (amount[2] == "tokens" and "." in amount[1]) or not float(amount[1]):
            raise ConfigError(
                f"budget={value}: expected dollars or tokens, e.g. budget=2.50usd or budget=500000tokens"
            )
        return cls(float(amount[1]) if amount[2] == "usd" else int(amount[1]), amount[2])

    @classmethod
    def last(cls, overrides: Sequence[str]) -> Budget | None:
        """Return the last of some overrides `budget=…`, or None without one."""
        return cls.of(override_values(overrides)["budget"]) if overrides else None

    def __str__(self) -> str:
        return f"{self.limit:g}usd" if self.unit == "usd" else f"{self.limit}tokens"

    def so_far(self) -> str:
        return f"budget={self}, {self.paid.tokens:,} tokens and {self.paid.dollars:.4f} USD paid so far"

    @property
    def _used(self) -> float:
        return self.paid.dollars if self.unit == "usd" else self.paid.tokens

    def spent(self) -> bool:
        return self.exhausted or self._used >= self.limit

    def pay(self, paid: Spent, *, exhausted: bool = False) -> None:
        """Count the cost of a cell: its calls, extractions and judge in this command.

        exhausted: its engine stopped because the budget was spent.
        """
        self.paid += paid
        self.exhausted = self.exhausted or exhausted

    def left(self) -> Budget:
        """Return the rest. It is never 0, because an engine without a budget has no limit."""
        return replace(self, limit=max(1e-6 if self.unit == "usd" else 1, self.limit - self._used))


def limited(config: Config, allowance: Budget | None) -> dict[str, Json]:
    """Return the configuration with an engine that stops when the allowance is spent, if it is one that counts.

    An engine on this machine has no budget of its own: there the sweep stops between cells.
    """
    engine = config["engine"]
    if allowance is None or "budget_tokens" not in engine:
        return dict(config)
    if allowance.unit == "usd" and config["model"].get("prices") is None:
        raise ConfigError(
            f"budget={allowance}: model={config['model']['name']} has no prices. Set model.prices or a budget in tokens"
        )
    key = f"budget_{allowance.unit}"
    limits = (limit for limit in (engine[key], allowance.limit) if limit is not None)
    return {**config, "engine": {**engine, key: min(limits)}}
