"""What the calls of a run cost: as if nothing had been cached, and what was really paid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from kgqa.calls import Choose, Generate
from kgqa.runtime.scheduler import Record
from kgqa.types import Json


@dataclass
class Cost:
    """Sums over model calls; a cached reply counts with the tokens and seconds of the call that made it."""

    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0  # of the prompt tokens, found in the engine's prefix cache
    output_tokens: int = 0
    seconds: float = 0.0

    def add(self, record: Record) -> None:
        self.calls += 1
        if not isinstance(record.reply, Exception):
            usage = record.reply.usage
            self.prompt_tokens += usage.prompt_tokens
            self.cached_tokens += usage.cached_tokens
            self.output_tokens += usage.output_tokens
            self.seconds += usage.seconds

    def json(self) -> dict[str, Json]:
        return {
            "calls": self.calls,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "output_tokens": self.output_tokens,
            "seconds": round(self.seconds, 3),
        }


@dataclass
class Ledger:
    """Costs by role, and the counts a progress line shows."""

    method: dict[str, Cost] = field(default_factory=dict)  # as if nothing had been cached: the paper's cost
    paid: dict[str, Cost] = field(default_factory=dict)
    answered: Counter[str] = field(default_factory=Counter)  # every kind of call
    hits: Counter[str] = field(default_factory=Counter)

    def add(self, record: Record) -> None:
        kind = type(record.call).__name__
        self.answered[kind] += 1
        self.hits[kind] += record.cached
        if isinstance(record.call, Generate | Choose):
            self.method.setdefault(record.call.role, Cost()).add(record)
            if not record.cached:
                self.paid.setdefault(record.call.role, Cost()).add(record)

    def json(self, questions: int) -> dict[str, Json]:
        return {"method": _with_total(self.method, questions), "paid": _with_total(self.paid, questions)}


def total(costs: Iterable[Cost]) -> Cost:
    everything = Cost()
    for cost in costs:
        everything.calls += cost.calls
        everything.prompt_tokens += cost.prompt_tokens
        everything.cached_tokens += cost.cached_tokens
        everything.output_tokens += cost.output_tokens
        everything.seconds += cost.seconds
    return everything


def _with_total(costs: dict[str, Cost], questions: int) -> dict[str, Json]:
    whole = total(costs.values())
    return {
        **whole.json(),
        "calls_per_question": round(whole.calls / questions, 2) if questions else None,
        "by_role": {role: cost.json() for role, cost in sorted(costs.items())},
    }
