"""Estimate tokens, time and money of planned calls, from the call cache and from finished runs.

Tokens and calls: finished runs of the same method and settings show how many calls a question takes on average. Without
them, the estimate goes from one call per question and role to all calls of the plan, in which no question stops early.

Time: each cached call has its tokens and its seconds, which give the speed of its model.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from math import sqrt

from kgqa.artifacts.metrics import METRICS, Metrics
from kgqa.artifacts.run import SCRIPTED, read_settings
from kgqa.artifacts.sweep import SET
from kgqa.cache.store import CallCache, StoredUsage
from kgqa.config.building import changing_settings
from kgqa.config.files import flatten
from kgqa.config.overrides import format_value
from kgqa.errors import DataError
from kgqa.experiment.dry_run import PlannedCalls
from kgqa.experiment.experiment import Experiment
from kgqa.types import Json
from kgqa.util.places import call_cache, outputs
from kgqa.util.text import duration, pluralize

# newest calls of a model that are read
MEASURED = 5_000
# the same work took up to this much longer or shorter from one run to the next
SPREAD = 1.5
# few-shot examples of the same number
_SAMPLES = (SET, "method.seed", "method.few_shot.sample")
CallSettings = frozenset[tuple[str, str]]
# read tokens that cost as much as a written one, roughly
WRITTEN = 20


@dataclass(frozen=True)
class Range:
    """A lower and an upper end."""

    low: float = 0.0
    high: float = 0.0

    @classmethod
    def at(cls, value: float) -> Range:
        """Return a range of one value."""
        return cls(value, value)

    def up_to(self, most: float) -> Range:
        """Return the range with no end above `most`."""
        return Range(min(self.low, most), min(self.high, most))

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)

    def __mul__(self, other: Range | float) -> Range:
        factors = other if isinstance(other, Range) else Range.at(other)
        return Range(self.low * factors.low, self.high * factors.high)


@dataclass(frozen=True)
class Estimated:
    """`calls`, `new_calls`: of the plan, at most. `seconds`, `usd`: None if unknown. `notes`: the basis."""

    calls: int
    new_calls: int
    tokens: Range  # of new calls
    seconds: Range | None
    usd: Range | None
    notes: tuple[str, ...] = ()

    def scaled(self, share: float) -> Estimated:
        """Return the estimate for `share` times as many questions."""
        return replace(
            self,
            calls=round(share * self.calls),
            new_calls=round(share * self.new_calls),
            tokens=self.tokens * share,
            seconds=self.seconds and self.seconds * share,
            usd=self.usd and self.usd * share,
        )

    @classmethod
    def sum(cls, estimates: Sequence[Estimated]) -> Estimated:
        """Return the sum, without a time if one of them has none."""
        seconds = [each.seconds for each in estimates if each.seconds is not None]
        dollars = [each.usd for each in estimates if each.usd is not None]
        return cls(
            calls=sum(each.calls for each in estimates),
            new_calls=sum(each.new_calls for each in estimates),
            tokens=sum((each.tokens for each in estimates), Range()),
            seconds=sum(seconds, Range()) if len(seconds) == len(estimates) else None,
            usd=sum(dollars, Range()) if dollars else None,
            notes=tuple(dict.fromkeys(note for each in estimates for note in each.notes)),
        )

    def lines(self) -> list[str]:
        if not self.new_calls:
            return []
        lines = [
            f"estimated new tokens: {format_range(self.tokens, '{:,.0f}')}",
            f"time: {format_time(self.seconds)}",
        ]
        if self.usd is not None:
            lines.append(f"cost: {format_range(self.usd, '{:,.2f}')} USD")
        return lines + [f"  {note}" for note in self.notes]


@dataclass
class RoleHistory:
    """The calls of one role in finished runs of one method."""

    runs: int = 0
    questions: int = 0
    calls: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0

    def calls_of(self, questions: int) -> Range:
        """Return the calls of a number of questions. The mean of n questions deviates by about 1/√n of itself."""
        mean, deviation = questions * self.calls / self.questions, 1 / sqrt(self.questions + 1)
        return Range(mean * (1 - deviation), mean * (1 + deviation))


def list_call_settings(experiment: Experiment) -> CallSettings:
    """Return the settings on which the number and size of calls depend: those of the method and of the extraction."""
    changing: dict[str, Json] = {
        group: changing_settings(experiment.config[group], group)
        for group in ("method", "kg")
        if group in experiment.choices
    }
    return frozenset(
        (key, format_value(value))
        for key, value in flatten(changing).items()
        if key not in _SAMPLES and not key.endswith("_target_")
    )


def read_history(
    method: str, settings: CallSettings = frozenset()
) -> dict[tuple[str, str], RoleHistory]:
    """Return what roles did in the finished runs of a method, by role and `model@engine`.

    Skip unreadable runs, and those that differ in one of the settings.
    """
    history: dict[tuple[str, str], RoleHistory] = defaultdict(RoleHistory)
    for file in sorted(outputs().glob(f"*/{method}/*/*/{METRICS}")):
        with suppress(DataError):
            if not settings <= read_settings(file.parent).items():
                continue
            metrics = Metrics.read(file.parent)
            engines = metrics.throughput.engines if metrics.throughput else ()
            names = {role: use.engine for use in engines for role in use.roles}
            for role, cost in metrics.cost.method.by_role.items():
                estimates = history[role, names.get(role, "")]
                estimates.runs += 1
                estimates.questions += metrics.questions - metrics.failed
                estimates.calls += cost.calls
                estimates.prompt_tokens += cost.prompt_tokens
                estimates.output_tokens += cost.output_tokens
    return {
        key: estimates
        for key, estimates in history.items()
        if estimates.questions and estimates.calls
    }


def estimate_plan(
    plan: Mapping[str, PlannedCalls], method: str = "", settings: CallSettings = frozenset()
) -> Estimated:
    """Estimate a plan from the call cache of this folder."""
    with closing(CallCache(call_cache())) as cache:
        return Estimator(cache).estimate(plan, method, settings)


class Estimator:
    """Estimates plans. Calls and finished runs are read once."""

    def __init__(self, cache: CallCache) -> None:
        self._usages = lru_cache(lambda origin: cache.usages(origin, MEASURED))
        self._histories = lru_cache(read_history)

    def estimate(
        self, plan: Mapping[str, PlannedCalls], method: str, settings: CallSettings = frozenset()
    ) -> Estimated:
        """Estimate the planned calls of a method with these settings; "": of something else, such as an index."""
        runs = self._histories(method, settings) if method else {}
        estimates = []
        # finished runs with the same model, or with any
        for name, role in plan.items():
            others = (
                estimate_of_role for (other, _), estimate_of_role in runs.items() if other == name
            )
            history = runs.get((name, role.engine)) or next(others, None)
            estimates.append(_estimate_role(role, history, self._usages(role.origin), method))
        return Estimated.sum(estimates)


def _estimate_role(
    role: PlannedCalls, history: RoleHistory | None, usages: Sequence[StoredUsage], method: str
) -> Estimated:
    if not role.new.calls:
        return Estimated(role.every.calls, 0, Range(), Range(), Range() if role.prices else None)
    calls, notes = _expected_calls(role, history, method)
    prompt, output = _tokens_per_call(role, history, usages)
    read, output_tokens = calls * prompt, calls * output
    cached = sum(usage.cached for usage in usages) / max(sum(usage.prompt for usage in usages), 1)
    usd = seconds = None
    if role.prices:
        low, high = (
            role.prices.dollars(round(tokens), round(tokens * cached), round(replies))
            for tokens, replies in ((read.low, output_tokens.low), (read.high, output_tokens.high))
        )
        usd = Range(low, high)
    if role.engine.endswith(f"@{SCRIPTED}"):
        seconds = Range()
        notes.append(f"time: engine={SCRIPTED} calls no model, so its replies take no time")
    elif usages:
        seconds = _estimate_seconds(role, usages, read * (1 - cached) + output_tokens * WRITTEN)
        calls_measured = pluralize(len(usages), "earlier call")
        notes.append(f"time: at the speed of {calls_measured} of {role.engine} in the call cache")
    else:
        notes.append(
            f"time: no call of {role.engine} is in the call cache. A run with limit=3 measures its speed"
        )
    return Estimated(
        role.every.calls, role.new.calls, read + output_tokens, seconds, usd, tuple(notes)
    )


def _expected_calls(
    role: PlannedCalls, history: RoleHistory | None, method: str
) -> tuple[Range, list[str]]:
    """Return the number of new calls, and what it rests on."""
    most, programs = float(role.new.calls), len(role.new_programs)
    if history:
        runs = pluralize(history.runs, "finished run")
        note = f"calls: as many per question as in {runs} of {method} with these settings here"
        return history.calls_of(programs).up_to(most), [note]
    if programs == role.new.calls:
        return Range.at(most), []
    note = (
        "calls: from one per question and role to all planned calls, because "
        f"no run{method and f' of {method} with these settings'} is finished here"
    )
    return Range(programs, most), [note]


def _tokens_per_call(
    role: PlannedCalls, history: RoleHistory | None, usages: Sequence[StoredUsage]
) -> tuple[float, Range]:
    """Return the prompt tokens and the output tokens of a call."""
    if history:
        return history.prompt_tokens / history.calls, Range.at(
            history.output_tokens / history.calls
        )
    planned, replies = role.new.usage, [usage.output for usage in usages if usage.generated]
    prompt, most = planned.prompt_tokens / role.new.calls, planned.output_tokens / role.new.calls
    if not usages:
        return prompt, Range(1.0, most).up_to(most)
    usual = sum(replies) / len(replies) if replies else 1.0
    return prompt, Range(usual, 2 * usual).up_to(most)


def _estimate_seconds(role: PlannedCalls, usages: Sequence[StoredUsage], work: Range) -> Range:
    """Return the time for some work, in written tokens and their equivalents, at the speed of earlier calls."""
    measured = max(sum(usage.work(WRITTEN) for usage in usages), 1)
    alone = sum(usage.seconds for usage in usages) / measured  # seconds per unit of work
    usual = fastest = alone
    # calls next to each other: more of them than were measured can be faster
    if role.at_once:
        usual = _busy_seconds(usages) / measured
        fastest = alone / min(role.at_once, len(role.new_programs))
    return Range(work.low * min(usual / SPREAD, fastest), work.high * usual * SPREAD)


def _busy_seconds(usages: Sequence[StoredUsage]) -> int:
    """Return the number of seconds in which at least one call was made."""
    busy, end = 0, 0
    for start, last in sorted(
        (int(usage.made + 0.5 - usage.seconds), usage.made) for usage in usages
    ):
        busy += max(0, last + 1 - max(start, end))
        end = max(end, last + 1)
    return busy


def format_range(value: Range, form: str | Callable[[float], str]) -> str:
    """Return both ends, or one if they read the same."""
    write = form.format if isinstance(form, str) else form
    low, high = write(value.low), write(value.high)
    return f"about {low}" if low == high else f"{low} to {high}"


def format_time(seconds: Range | None) -> str:
    return "unknown" if seconds is None else format_range(seconds, duration)
