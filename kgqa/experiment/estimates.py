"""Estimate tokens, time and money of planned calls, from the call cache and from finished runs.

Tokens and calls: a finished run of the same method shows how many calls a question takes on average. Without one, the
estimate goes from one call per question and role to all calls of the plan, in which no question stops early.

Time: each cached call has its tokens and its seconds. They give the cost of a token that is read and of one that is
written. Calls that overlap share their time: the seconds in which an engine was busy count once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import sqrt

from kgqa.artifacts.metrics import METRICS, Metrics, RoleCost
from kgqa.cache.store import CallCache, StoredUsage
from kgqa.errors import DataError
from kgqa.experiment.dry_run import Plan, Planned
from kgqa.util.fs import call_cache, outputs
from kgqa.util.text import duration, pluralize

MEASURED = 5_000  # newest calls of a model that are read
KNOWN = 10  # times the measured tokens, beyond which a time is unknown
PAUSE = 5  # seconds without a call that are other work of a run, such as search; longer ones are not counted
SPREAD = 1.5  # the same work took up to this much longer or shorter from one run to the next
WRITTEN = (1, 2, 5, 10, 20, 50, 100, 200)  # how many read tokens cost as much as a written one: the values tried


@dataclass(frozen=True)
class Range:
    """A lower and an upper end."""

    low: float = 0.0
    high: float = 0.0

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)

    def __mul__(self, share: float) -> Range:
        return Range(share * self.low, share * self.high)

    @property
    def middle(self) -> float:
        return sqrt(self.low * self.high)


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
        lines = [f"estimated new tokens: {format_range(self.tokens, '{:,.0f}')}", f"time: {format_time(self.seconds)}"]
        if self.usd is not None:
            lines.append(f"cost: {format_range(self.usd, '{:,.2f}')} USD")
        return lines + [f"  {note}" for note in self.notes]


@dataclass(frozen=True)
class Speed:
    """The speed of a model on an engine. Work is counted in read tokens that no prefix cache had.

    written: read tokens that cost as much as a written one. unit: seconds per unit of work. single: the same if the
    calls had not overlapped. cached: share of prompt tokens that a prefix cache had. output: tokens of a reply.
    """

    written: float
    unit: float
    single: float
    cached: float
    output: float


def measure_speed(calls: Sequence[StoredUsage], *, overlapping: bool) -> Speed:
    """Measure the speed of a model from its calls in the cache, at least one.

    overlapping: calls are made next to each other, and the seconds of one include its waiting for others. Otherwise
    the seconds of a batch are shared among its calls.
    """
    seconds = sum(call.seconds for call in calls)

    def rate(weight: float) -> float:
        return seconds / max(sum(call.work(weight) for call in calls), 1)

    def error(weight: float) -> float:
        unit = rate(weight)
        return sum(abs(call.seconds - unit * call.work(weight)) for call in calls)

    weight = min(WRITTEN, key=error)
    single = rate(weight)
    replies = [call.output for call in calls if call.generated]
    return Speed(
        written=weight,
        unit=single * _busy_seconds(calls) / max(seconds, 1e-9) if overlapping else single,
        single=single,
        cached=sum(call.cached for call in calls) / max(sum(call.prompt for call in calls), 1),
        output=sum(replies) / len(replies) if replies else 1.0,
    )


def _busy_seconds(calls: Iterable[StoredUsage]) -> float:
    """Return the seconds in which at least one call was made, with short pauses between them."""
    busy: set[int] = set()
    for call in calls:
        busy.update(range(int(call.made + 0.5 - call.seconds), call.made + 1))
    ordered = sorted(busy)
    pauses = (after - before - 1 for before, after in pairwise(ordered))
    return len(busy) + sum(pause for pause in pauses if pause <= PAUSE)


@dataclass
class RoleHistory:
    """The calls of one role in finished runs of one method. `questions`: 0 for extraction and judges."""

    runs: int = 0
    questions: int = 0
    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0

    def add(self, cost: RoleCost, questions: int) -> None:
        self.runs += 1
        self.questions += questions
        self.calls += cost.calls
        self.prompt_tokens += cost.prompt_tokens
        self.cached_tokens += cost.cached_tokens
        self.output_tokens += cost.output_tokens

    def calls_of(self, questions: int) -> Range:
        """Return the calls of a number of questions. The mean of n questions deviates by about 1/√n of itself."""
        mean, deviation = questions * self.calls / self.questions, 1 / sqrt(self.questions + 1)
        return Range(mean * (1 - deviation), mean * (1 + deviation))


def read_history(method: str) -> dict[str, dict[str, RoleHistory]]:
    """Return what roles did in the finished runs of a method, by `model@engine` and role. Skip unreadable runs."""
    history: dict[str, dict[str, RoleHistory]] = defaultdict(lambda: defaultdict(RoleHistory))
    for file in sorted(outputs().glob(f"*/{method}/*/*/{METRICS}") if method else ()):
        with suppress(DataError):
            metrics = Metrics.read(file.parent)
            engines = metrics.throughput.engines if metrics.throughput else ()
            names = {role: use.engine for use in engines for role in use.roles}
            costs = [(metrics.cost.method, metrics.questions - metrics.failed), (metrics.cost.extraction_paid, 0)]
            for cost, questions in [*costs, (metrics.judge.cost.method if metrics.judge else None, 0)]:
                for role, own in cost.by_role.items() if cost else ():
                    history[names.get(role, engines[0].engine if engines else "")][role].add(own, questions)
    return history


def estimate_plan(plan: Plan, method: str = "") -> Estimated:
    """Estimate a plan from the call cache of this folder."""
    with closing(CallCache(call_cache())) as cache:
        return Estimator(cache).estimate(plan, method)


class Estimator:
    """Estimates plans. Calls and finished runs are read once."""

    def __init__(self, cache: CallCache) -> None:
        self._usages = lru_cache(lambda origin: cache.usages(origin, MEASURED))
        self._histories = lru_cache(read_history)

    def estimate(self, plan: Plan, method: str) -> Estimated:
        """Estimate the planned calls of a method; "": of something else, such as a verification."""
        runs = self._histories(method)
        estimates = []
        for name, role in plan.items():  # finished runs with the same model, or with any
            others = (each[name] for each in runs.values() if name in each)
            history = runs.get(role.engine, {}).get(name) or next(others, RoleHistory())
            estimates.append(_estimate_role(role, history, self._usages(role.origin), method))
        return Estimated.sum(estimates)


def _estimate_role(role: Planned, history: RoleHistory, usages: Sequence[StoredUsage], method: str) -> Estimated:
    if not role.new_calls:
        return Estimated(role.calls, 0, Range(), Range(), Range() if role.prices else None)
    speed = measure_speed(usages, overlapping=role.at_once is not None) if usages else None
    calls, notes = _expected_calls(role, history, method)
    prompt, cached, output = _tokens_per_call(role, history, speed)
    read, written = _times(calls, prompt), _times(calls, output)
    usd = seconds = None
    if role.prices:
        usd = Range(*(
            role.prices.dollars(round(tokens), round(tokens * cached), round(replies))
            for tokens, replies in ((read.low, written.low), (read.high, written.high))
        ))  # fmt: skip
    measured = sum(round(usage.work(1)) for usage in usages)
    tokens = read + written
    if speed is None:
        notes.append(f"no call of {role.engine} is in the call cache. A run with limit=3 measures its speed")
    elif tokens.middle > KNOWN * measured:
        known = f"more than {KNOWN} times the {measured:,} tokens measured with {role.engine}"
        notes.append(f"{known}. A longer run makes an estimate possible")
    else:
        work = read * (1 - cached) + written * speed.written
        # more calls at once than were measured can be faster, up to their number
        fastest = speed.single / min(role.at_once, len(role.new_programs)) if role.at_once else speed.unit
        seconds = Range(work.low * min(speed.unit / SPREAD, fastest), work.high * speed.unit * SPREAD)
        notes.append(f"speed of {pluralize(len(usages), 'cached call')} of {role.engine}")
    return Estimated(role.calls, role.new_calls, tokens, seconds, usd, tuple(notes))


def _times(calls: Range, each: Range) -> Range:
    return Range(calls.low * each.low, calls.high * each.high)


def _expected_calls(role: Planned, history: RoleHistory, method: str) -> tuple[Range, list[str]]:
    """Return the number of new calls, and what it rests on."""
    most, programs = float(role.new_calls), len(role.new_programs)
    if history.questions:
        calls = history.calls_of(programs)
        note = f"calls of {pluralize(history.runs, 'finished run')} of {method}"
        return Range(min(calls.low, most), min(calls.high, most)), [note]
    if programs < role.new_calls:
        note = f"no finished run{method and f' of {method}'}: from one call per question and role to all planned calls"
        return Range(programs, most), [note]
    return Range(most, most), []


def _tokens_per_call(role: Planned, history: RoleHistory, speed: Speed | None) -> tuple[Range, float, Range]:
    """Return the prompt tokens of a call, the share of them in the prefix cache, and its output tokens."""
    prompt, most = role.new_prompt_tokens / role.new_calls, role.new_output_tokens / role.new_calls
    if history.calls:
        output, read = history.output_tokens / history.calls, history.prompt_tokens / history.calls
        share = history.cached_tokens / max(history.prompt_tokens, 1)
        return Range(min(read, prompt), max(read, prompt)), share, Range(output, output)
    if speed is None:
        return Range(prompt, prompt), 0.0, Range(min(1.0, most), most)
    return Range(prompt, prompt), speed.cached, Range(min(speed.output, most), min(2 * speed.output, most))


def format_range(value: Range, form: str) -> str:
    """Return both ends, or one if they read the same."""
    low, high = form.format(value.low), form.format(value.high)
    return f"about {low}" if low == high else f"{low} to {high}"


def format_time(seconds: Range | None) -> str:
    if seconds is None:
        return "unknown"
    low, high = duration(seconds.low), duration(seconds.high)
    return f"about {low}" if low == high else f"{low} to {high}"
