"""Estimate tokens, time and money of planned calls, from the call cache and from finished runs.

Tokens and calls: a finished run of the same method shows how many calls a question takes on average. Without one, the
estimate goes from one call per question and role to all calls of the plan, in which no question stops early.

Time: each cached call has its tokens and its seconds. They give the cost of a token that is read and of one that is
written. Calls that overlap share their time: the seconds in which an engine was busy count once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from math import sqrt

from kgqa.artifacts.metrics import METRICS, Metrics, RoleCost
from kgqa.cache.store import CallCache, Origin, StoredUsage
from kgqa.errors import DataError
from kgqa.experiment.dry_run import Plan, Planned
from kgqa.util.fs import call_cache, outputs
from kgqa.util.text import duration, pluralize

MEASURED = 5_000  # newest calls of a model that are read
KNOWN = 10  # times the measured tokens, beyond which a time is unknown
SIMILAR = 3  # times a prompt's length
ENOUGH = 5  # calls of similar length, of which the speed is measured
PAUSE = 5  # seconds without a call that are other work of a run, such as search; longer ones are not counted
SESSION = 60  # seconds without a call after which the speed is measured anew
MARGIN = 1.25  # by which the same work took longer or shorter from one hour to the next
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
    """`calls`, `new_calls`: of the plan, at most. `seconds`: None if unknown. `usd`: None if a price is unknown.

    notes: what the estimate rests on, or why the time is unknown.
    """

    calls: int
    new_calls: int
    tokens: Range  # of new calls
    seconds: Range | None
    usd: Range | None
    notes: tuple[str, ...] = ()

    def scaled(self, share: float) -> Estimated:
        """Return the estimate for `share` times as many questions."""
        return Estimated(
            calls=round(share * self.calls),
            new_calls=round(share * self.new_calls),
            tokens=self.tokens * share,
            seconds=None if self.seconds is None else self.seconds * share,
            usd=None if self.usd is None else self.usd * share,
            notes=self.notes,
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

    written: read tokens that cost as much as a written one. unit: seconds per unit of work. read, output: tokens per
    call, the latter only of generated replies. single: seconds per unit if the calls had not overlapped.
    """

    calls: int
    written: float
    unit: Range
    single: float
    cached: float  # share of prompt tokens that a prefix cache had
    output: float


def measure_speed(calls: Sequence[StoredUsage], *, overlapping: bool) -> Speed | None:
    """Measure the speed of a model from its calls in the cache; None without any.

    overlapping: calls are made next to each other, and the seconds of one include its waiting for others. Otherwise
    the seconds of a batch are shared among its calls.
    """
    if not calls:
        return None
    seconds = sum(call.seconds for call in calls)
    read, written = sum(call.prompt - call.cached for call in calls), sum(call.output for call in calls)

    def error(weight: float) -> float:
        unit = seconds / max(read + weight * written, 1)
        return sum(abs(call.seconds - unit * call.work(weight)) for call in calls)

    weight = min(WRITTEN, key=error)
    units = []
    for session in _sessions(calls):
        work = sum(call.work(weight) for call in session)
        busy = _busy_seconds(session) if overlapping else sum(call.seconds for call in session)
        units.append((busy / max(work, 1), work))
    replies = [call.output for call in calls if call.generated]
    return Speed(
        calls=len(calls),
        written=weight,
        unit=_spread(units),
        single=seconds / max(read + weight * written, 1),
        cached=sum(call.cached for call in calls) / max(sum(call.prompt for call in calls), 1),
        output=sum(replies) / len(replies) if replies else 1.0,
    )


def _sessions(calls: Iterable[StoredUsage]) -> list[list[StoredUsage]]:
    """Split calls where none was made for a minute."""
    sessions: list[list[StoredUsage]] = []
    for call in sorted(calls, key=lambda call: call.made):
        if not sessions or call.made - call.seconds - sessions[-1][-1].made > SESSION:
            sessions.append([])
        sessions[-1].append(call)
    return sessions


def _busy_seconds(session: Iterable[StoredUsage]) -> float:
    """Return the seconds in which at least one call was made, with short pauses between them."""
    busy: set[int] = set()
    for call in session:
        busy.update(range(int(call.made + 0.5 - call.seconds), call.made + 1))
    ordered = sorted(busy)
    pauses = (after - before - 1 for before, after in pairwise(ordered))
    return len(busy) + sum(pause for pause in pauses if pause <= PAUSE)


def _spread(units: Sequence[tuple[float, float]]) -> Range:
    """Return the ends of the middle 80 % of the work, by its seconds per unit, with a margin."""
    ordered, total, passed = sorted(units), sum(work for _, work in units), 0.0
    low, high = ordered[0][0], ordered[-1][0]
    for unit, work in ordered:
        if passed <= 0.1 * total:
            low = unit
        if passed < 0.9 * total:
            high = unit
        passed += work
    return Range(low / MARGIN, high * MARGIN)


@dataclass
class RoleHistory:
    """The calls of one role in finished runs of one method."""

    runs: int = 0
    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    per_question: list[Range] = field(default_factory=list)  # calls, one per run; none for extraction and judges

    def add(self, cost: RoleCost, questions: int | None) -> None:
        self.runs += 1
        self.calls += cost.calls
        self.prompt_tokens += cost.prompt_tokens
        self.cached_tokens += cost.cached_tokens
        self.output_tokens += cost.output_tokens
        if questions:
            # the mean of n questions deviates by about 1/√n of itself
            mean, deviation = cost.calls / questions, 1 / sqrt(questions + 1)
            self.per_question.append(Range(mean * (1 - deviation), mean * (1 + deviation)))


def read_history(method: str) -> dict[str, dict[str, RoleHistory]]:
    """Return what roles did in the finished runs of a method, by `model@engine` and role. Skip unreadable runs."""
    history: dict[str, dict[str, RoleHistory]] = defaultdict(lambda: defaultdict(RoleHistory))
    for file in sorted(outputs().glob(f"*/{method}/*/*/{METRICS}") if method else ()):
        with suppress(DataError):
            metrics = Metrics.read(file.parent)
            answered = metrics.questions - metrics.failed
            engines = metrics.throughput.engines if metrics.throughput else ()
            names = {role: use.engine for use in engines for role in use.roles}
            for role, cost in metrics.cost.method.by_role.items():
                history[names.get(role, "")][role].add(cost, answered)
            others = [metrics.cost.extraction_paid, metrics.judge.cost.method if metrics.judge else None]
            for role, cost in ((role, cost) for each in others if each for role, cost in each.by_role.items()):
                history[names.get(role, engines[0].engine if engines else "")][role].add(cost, None)
    return history


def estimate_plan(plan: Plan, method: str = "") -> Estimated:
    """Estimate a plan from the call cache of this folder."""
    with closing(CallCache(call_cache())) as cache:
        return Estimator(cache).estimate(plan, method)


class Estimator:
    """Estimates plans. Speeds and finished runs are read once."""

    def __init__(self, cache: CallCache) -> None:
        self._cache = cache
        self._usages: dict[Origin, list[StoredUsage]] = {}
        self._histories: dict[str, dict[str, dict[str, RoleHistory]]] = {}

    def estimate(self, plan: Plan, method: str) -> Estimated:
        """Estimate the planned calls of a method; "": of something else, such as a verification."""
        return Estimated.sum([self._estimate_role(name, role, method) for name, role in plan.items()])

    def _estimate_role(self, name: str, role: Planned, method: str) -> Estimated:
        if not role.new_calls:
            return Estimated(role.calls, 0, Range(), Range(), Range() if role.prices else None)
        history, usages = self._history(name, role, method), self._read_usages(role)
        speed = measure_speed(_similar(usages, role), overlapping=role.at_once is not None)
        calls, note = _expected_calls(role, history, method)
        read, cached, written = _tokens_per_call(role, history, speed)
        ends = [(calls.low, read.low, cached, written.low), (calls.high, read.high, cached, written.high)]
        tokens = Range(*(count * (prompt + output) for count, prompt, _, output in ends))
        usd = None
        if role.prices:
            dollars = (
                role.prices.dollars(round(count * prompt), round(count * prompt * share), round(count * output))
                for count, prompt, share, output in ends
            )
            usd = Range(*dollars)
        notes, seconds = [note] if note else [], None
        if speed is None:
            notes.append(f"no call of {role.engine} is in the call cache; a run with limit=3 measures its speed")
        elif tokens.middle > KNOWN * (measured := sum(round(usage.work(1)) for usage in usages)):
            known = f"more than {KNOWN} times the {measured:,} tokens measured with {role.engine}"
            notes.append(f"{known}; a longer run gives an estimate")
        else:
            work = (count * (prompt * (1 - share) + speed.written * output) for count, prompt, share, output in ends)
            seconds = _seconds(Range(*work), role, speed)
            notes.append(f"speed of {pluralize(speed.calls, 'cached call')} of {role.engine}")
        return Estimated(role.calls, role.new_calls, tokens, seconds, usd, tuple(notes))

    def _read_usages(self, role: Planned) -> list[StoredUsage]:
        if role.origin not in self._usages:
            self._usages[role.origin] = self._cache.usages(role.origin, MEASURED)
        return self._usages[role.origin]

    def _history(self, name: str, role: Planned, method: str) -> RoleHistory | None:
        """Return the finished runs with the same model, or with any model."""
        if method not in self._histories:
            self._histories[method] = read_history(method)
        runs: Mapping[str, Mapping[str, RoleHistory]] = self._histories[method]
        same = runs.get(role.engine, {}).get(name)
        return same or next((each[name] for each in runs.values() if name in each), None)


def _similar(usages: Sequence[StoredUsage], role: Planned) -> Sequence[StoredUsage]:
    """Return the calls with prompts of a similar length, because a token costs more in a long prompt; or all calls."""
    prompt = role.new_prompt_tokens / role.new_calls
    similar = [usage for usage in usages if prompt / SIMILAR <= usage.prompt <= prompt * SIMILAR]
    return similar if len(similar) >= ENOUGH else usages


def _expected_calls(role: Planned, history: RoleHistory | None, method: str) -> tuple[Range, str]:
    """Return the number of new calls, and what it rests on."""
    most = float(role.new_calls)
    if history and history.per_question:
        low = min(each.low for each in history.per_question) * len(role.new_programs)
        high = max(each.high for each in history.per_question) * len(role.new_programs)
        return Range(min(low, most), min(high, most)), f"calls of {pluralize(history.runs, 'finished run')} of {method}"
    if len(role.new_programs) < role.new_calls:
        note = f"no finished run{method and f' of {method}'}: from one call per question and role to all planned calls"
        return Range(len(role.new_programs), most), note
    return Range(most, most), ""


def _tokens_per_call(role: Planned, history: RoleHistory | None, speed: Speed | None) -> tuple[Range, float, Range]:
    """Return the prompt tokens of a call, the share of them in the prefix cache, and its output tokens."""
    prompt, most = role.new_prompt_tokens / role.new_calls, role.new_output_tokens / role.new_calls
    if history and history.calls:
        output = history.output_tokens / history.calls
        read = history.prompt_tokens / history.calls
        share = history.cached_tokens / max(history.prompt_tokens, 1)
        return Range(min(read, prompt), max(read, prompt)), share, Range(output, output)
    if speed is None:
        return Range(prompt, prompt), 0.0, Range(min(1.0, most), most)
    return Range(prompt, prompt), speed.cached, Range(min(speed.output, most), min(2 * speed.output, most))


def _seconds(work: Range, role: Planned, speed: Speed) -> Range:
    """Return the time of some work. More calls at once than were measured can be faster, up to their number."""
    low = speed.unit.low
    if role.at_once:
        low = min(low, speed.single / min(role.at_once, len(role.new_programs)))
    return Range(work.low * low, work.high * speed.unit.high)


def format_range(value: Range, form: str) -> str:
    """Return both ends, or one if they read the same."""
    low, high = form.format(value.low), form.format(value.high)
    return f"about {low}" if low == high else f"{low} to {high}"


def format_time(seconds: Range | None) -> str:
    if seconds is None:
        return "unknown"
    low, high = duration(seconds.low), duration(seconds.high)
    return f"about {low}" if low == high else f"{low} to {high}"
