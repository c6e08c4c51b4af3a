"""Count the costs of calls: those of the method as if the cache were empty, and those of new (paid) calls.

A call that failed without a charge is not paid.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from kgqa.artifacts.metrics import Cost, Costs, Flagged, RoleCost
from kgqa.artifacts.schema import extend
from kgqa.calls import Choose, Generate
from kgqa.engines.weights import Prices
from kgqa.runtime.scheduler import CallRecord
from kgqa.types import Usage

PriceOf = Callable[[str], Prices | None]  # by role; None: unknown


@dataclass
class Tally:
    """Sums over model calls. A cached reply counts with the usage of the call that made it."""

    calls: int = 0
    usage: Usage = field(default_factory=Usage)
    flags: Counter[str] = field(default_factory=Counter)  # calls whose reply has a flag, see `Completion.flags`

    def add(self, record: CallRecord) -> None:
        """Count a call. A failed one has the usage that was charged for it."""
        self.calls += 1
        self.usage += _usage(record) or Usage()
        if not isinstance(record.reply, Exception):
            self.flags.update(set(record.reply.flags))

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.calls + other.calls, self.usage + other.usage, self.flags + other.flags)

    def cost(self, usd: float | None) -> RoleCost:
        """Return the sums in the form of `metrics.json`."""
        return RoleCost(
            calls=self.calls,
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

    method: dict[str, Tally] = field(default_factory=dict)  # as if the cache were empty: the paper's cost
    paid: dict[str, Tally] = field(default_factory=dict)
    queue_seconds: float = 0.0  # that paid calls waited for their engines, in sum
    answered: Counter[str] = field(default_factory=Counter)  # by kind of call
    hits: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)  # of new calls that need no model
    price: PriceOf = lambda role: None  # noqa: ARG005 - no prices

    def add(self, record: CallRecord) -> None:
        """Count a call."""
        kind = type(record.call).__name__
        self.answered[kind] += 1
        self.hits[kind] += record.cached
        if record.seconds:
            self.seconds[kind] = self.seconds.get(kind, 0.0) + record.seconds
        if isinstance(record.call, Generate | Choose):
            self.method.setdefault(record.call.role, Tally()).add(record)
            if not record.cached and _usage(record):
                self.paid.setdefault(record.call.role, Tally()).add(record)
                self.queue_seconds += record.queued

    def spent(self) -> Spent:
        """Return the sums of the paid calls."""
        dollars = (_dollars(tally, self.price(role)) or 0.0 for role, tally in self.paid.items())
        return Spent(total(self.paid.values()).usage.tokens, sum(dollars))

    def dollars(self) -> float | None:
        """Return the dollars of the paid calls, or None if a price is unknown."""
        paid = [_dollars(tally, self.price(role)) for role, tally in list(self.paid.items())]
        return None if None in paid else sum(filter(None, paid))

    def costs(self, questions: int) -> Costs:
        """Return the costs in the form of `metrics.json`, without dollars for roles with unknown prices."""
        prices = {role: self.price(role) for role in self.method}
        return Costs(
            method=_cost(self.method, questions, prices),
            paid=_cost(self.paid, questions, prices).replace(queue_seconds=round(self.queue_seconds, 3)),
        )


def _usage(record: CallRecord) -> Usage | None:
    """Return the usage that was charged for a call, or None."""
    usage: Usage | None = getattr(record.reply, "usage", None)
    return usage


def model_seconds(records: Iterable[CallRecord]) -> float:
    """Return the seconds that models worked on these calls, those of cached replies included."""
    usages = (_usage(record) for record in records if isinstance(record.call, Generate | Choose))
    return sum(usage.seconds for usage in usages if usage)


def total(tallies: Iterable[Tally]) -> Tally:
    """Return the sum of tallies."""
    return sum(tallies, Tally())


def _cost(tallies: Mapping[str, Tally], questions: int, prices: Mapping[str, Prices | None]) -> Cost:
    everything = total(tallies.values())
    dollars = {role: _dollars(tally, prices[role]) for role, tally in tallies.items()}
    known = [usd for usd in dollars.values() if usd is not None]
    # Without calls, the cost is zero only if some price is known
    has_prices = bool(prices) and None not in prices.values()
    return extend(
        Cost,
        everything.cost(sum(known) if has_prices else None),
        calls_per_question=round(everything.calls / questions, 2) if questions else None,
        by_role={role: tally.cost(dollars[role]) for role, tally in sorted(tallies.items())},
    )


def _dollars(tally: Tally, prices: Prices | None) -> float | None:
    usage = tally.usage
    return prices.dollars(usage.prompt_tokens, usage.cached_tokens, usage.output_tokens) if prices else None
