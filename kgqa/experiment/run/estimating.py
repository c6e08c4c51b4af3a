"""Estimate planned calls: time by the rates of earlier runs, money by the prices of the preset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kgqa.artifacts.metrics import METRICS, Metrics
from kgqa.errors import DataError
from kgqa.experiment.run.planning import Planned
from kgqa.util.fs import outputs

_FIT = 3  # runs that it takes to tell the cost of reading from that of writing


@dataclass
class Rate:
    """Of one model on one engine, over the runs in outputs/ that paid for calls and asked no other engine."""

    runs: list[tuple[int, int, float]] = field(default_factory=list)  # paid prompt tokens, output tokens, seconds
    replies: dict[str, tuple[int, int]] = field(default_factory=dict)  # by role: output tokens, calls

    def seconds(self, prompt: float, output: float) -> float:
        """Return least squares with costs per prompt and output token that are not negative; few runs: one cost for
        both.
        """
        if len(self.runs) >= _FIT:
            from scipy.optimize import nnls

            costs, _ = nnls([run[:2] for run in self.runs], [run[2] for run in self.runs])
            return float(costs[0] * prompt + costs[1] * output)
        tokens = sum(run[0] + run[1] for run in self.runs)
        return (prompt + output) * sum(run[2] for run in self.runs) / max(tokens, 1)

    def output(self, role: str, calls: int, at_most: int) -> float:
        """Return the expected completion tokens of `calls` replies, from the average of the role's replies."""
        tokens, known = self.replies.get(role, (0, 0))
        return min(at_most, calls * tokens / known) if known else at_most


@dataclass(frozen=True)
class Estimated:
    """`seconds`: None where an engine was never measured; `usd`: None where a price is not known."""

    calls: int
    new_calls: int
    tokens: int  # of the new calls
    seconds: float | None
    usd: float | None
    unmeasured: tuple[str, ...]
    measured: int  # runs that the time rests on

    def lines(self) -> list[str]:
        if not self.new_calls:
            return []
        lines = [f"to be asked: about {self.tokens:,} tokens"]
        if self.seconds is None:
            lines.append(
                f"time: not known, no finished run here with {', '.join(self.unmeasured)}; one with limit=3 tells"
            )
        else:
            lines.append(f"time: about {duration(self.seconds)}, from the rates of {self.measured} earlier runs")
        if self.usd is not None:
            lines.append(f"cost: about {self.usd:,.2f} USD")
        return lines


def estimate_roles(roles: Iterable[Planned], rates: Mapping[str, Rate]) -> Estimated:
    calls = new_calls = tokens = runs = 0
    seconds, usd, priced = 0.0, 0.0, False
    unmeasured: list[str] = []
    for role in roles:
        calls, new_calls = calls + role.calls, new_calls + role.new_calls
        tokens += role.new_prompt_tokens + role.new_output_tokens
        if role.usd is not None:
            usd, priced = usd + role.usd, True
        if not role.new_calls:
            continue
        rate = rates.get(role.engine)
        if rate is None:
            unmeasured.append(role.engine)
            continue
        name = next(iter(role.first.values())).role
        seconds += rate.seconds(role.new_prompt_tokens, rate.output(name, role.new_calls, role.new_output_tokens))
        runs = max(runs, len(rate.runs))
    known = None if unmeasured else seconds
    return Estimated(calls, new_calls, tokens, known, usd if priced else None, tuple(dict.fromkeys(unmeasured)), runs)


def measure_rates() -> dict[str, Rate]:
    """Return the rates by `model@engine` from the metrics of finished runs in outputs/, without unreadable ones."""
    rates: dict[str, Rate] = {}
    for file in sorted(outputs().glob(f"*/*/*/*/{METRICS}")):
        try:
            metrics = Metrics.read(file.parent)
        except DataError:
            continue
        throughput, paid = metrics.throughput, metrics.cost.paid
        if throughput is None or len(throughput.engines) != 1 or not paid.calls:
            continue
        rate = rates.setdefault(throughput.engines[0].engine, Rate())
        rate.runs.append((paid.prompt_tokens, paid.output_tokens, throughput.seconds))
        for role, cost in metrics.cost.method.by_role.items():
            tokens, calls = rate.replies.get(role, (0, 0))
            rate.replies[role] = (tokens + cost.output_tokens, calls + cost.calls)
    return rates


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"
