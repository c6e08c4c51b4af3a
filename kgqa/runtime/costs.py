"""Costs of a run's calls: as if nothing had been cached, and what was paid. A call that failed for free is not paid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields

from kgqa.artifacts.metrics import Cost, Costs, Flagged, RoleCost
from kgqa.artifacts.schema import extend
from kgqa.calls import Choose, Generate
from kgqa.engines.weights import Prices
from kgqa.runtime.scheduler import CallRecord
from kgqa.types import Usage

PriceOf = Callable[[str], Prices | None]  # by role; None: unknown


@dataclass
class Tally:
    """Sums over model calls. A cached reply counts with the tokens and seconds of the call that made it."""

    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0  # of the prompt tokens, found in the engine's prefix cache
    output_tokens: int = 0
    reasoning_tokens: int = 0  # of the output
    seconds: float = 0.0
    flags: Counter[str] = field(default_factory=Counter)  # calls whose reply has a flag, see `Completion.flags`

    def add(self, record: CallRecord) -> None:
        """Count a call; a failed one with what was charged for it."""
        self.calls += 1
        if usage := _usage(record):
            self.prompt_tokens += usage.prompt_tokens
            self.cached_tokens += usage.cached_tokens
            self.output_tokens += usage.output_tokens
            self.reasoning_tokens += usage.reasoning_tokens
            self.seconds += usage.seconds
        if not isinstance(record.reply, Exception):
            self.flags.update(set(record.reply.flags))

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    def cost(self, usd: float | None) -> RoleCost:
        """Return the sums as `metrics.json` has them."""
        return RoleCost(
            calls=self.calls,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            output_tokens=self.output_tokens,
            reasoning_tokens=self.reasoning_tokens or None,
            seconds=round(self.seconds, 3),
            usd=None if usd is None else round(usd, 6),
            flags={
                flag: Flagged(calls=calls, share=round(calls / self.calls, 4))
                for flag, calls in sorted(self.flags.items())
            },
        )


@dataclass(frozen=True, slots=True)
class Spent:
    """The tokens and dollars of paid calls; no dollars where prices are unknown."""

    tokens: int = 0  # of prompts and replies
    dollars: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.tokens + other.tokens, self.dollars + other.dollars)


NOTHING = Spent()


@dataclass
class Ledger:
    """Costs by role, and the counts of a progress line."""

    method: dict[str, Tally] = field(default_factory=dict)  # as if nothing had been cached: the paper's cost
    paid: dict[str, Tally] = field(default_factory=dict)
    queue_seconds: float = 0.0  # that paid calls waited for their engines, in sum
    answered: Counter[str] = field(default_factory=Counter)  # by kind of call
    hits: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)  # of new calls that need no model
    price: PriceOf = lambda role: None  # noqa: ARG005 - of the engines, for `dollars`

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
        """Return what was paid so far."""
        paid = total(self.paid.values())
        dollars = (_dollars(tally, self.price(role)) or 0.0 for role, tally in self.paid.items())
        return Spent(paid.prompt_tokens + paid.output_tokens, sum(dollars))

    def dollars(self) -> float | None:
        """Return what was paid so far, or None if a price is unknown."""
        paid = [_dollars(tally, self.price(role)) for role, tally in list(self.paid.items())]
        known = [dollars for dollars in paid if dollars is not None]
        return sum(known) if len(known) == len(paid) else None

    def costs(self, questions: int, price: PriceOf) -> Costs:
        """Return the costs as `metrics.json` has them, without dollars where a role's prices are unknown."""
        prices = {role: price(role) for role in self.method}
        return Costs(
            method=_cost(self.method, questions, prices),
            paid=_cost(self.paid, questions, prices).replace(queue_seconds=round(self.queue_seconds, 3)),
        )


def _usage(record: CallRecord) -> Usage | None:
    """Return what a call was charged; None if it failed before."""
    usage: Usage | None = getattr(record.reply, "usage", None)
    return usage


def model_seconds(records: Iterable[CallRecord]) -> float:
    """Return the seconds that models worked on these calls; a cached reply counts with the call that made it."""
    work = Tally()
    for record in records:
        if isinstance(record.call, Generate | Choose):
            work.add(record)
    return work.seconds


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
    return prices.dollars(tally.prompt_tokens, tally.cached_tokens, tally.output_tokens) if prices else None
