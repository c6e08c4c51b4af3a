"""Read our value from `metrics.json`, and decide whether it agrees with a published one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor, hypot, sqrt
from typing import ClassVar, Literal

from kgqa.scoring.intervals import Z, wilson
from kgqa.types import Json

# questions; below that, a bootstrap interval is too narrow
FEW = 30
MARGIN = 3.0  # points, for values in percent
# of the published value, for values in another unit
MARGIN_SHARE = 0.10
SECONDS = "s"
# of two published values that have an order; less is within the rounding of tables
LEAST_DIFFERENCE = 0.1

Verdict = Literal["agrees", "differs", "cannot tell", "not compared", "no model"]


@dataclass(frozen=True, slots=True)
class PublishedMetric:
    """A metric of a published table. `path`: a path in metrics.json, or a sum or ratio of paths. None: not measured.

    why: why it is not measured, or what else the paper measures under this name. Such values are not compared.
    """

    # a wrong key in a table's file is an error
    __pydantic_config__: ClassVar = {"extra": "forbid"}
    name: str
    path: str | None
    unit: str
    why: str


@dataclass(frozen=True, slots=True)
class Value:
    """A published value."""

    number: float
    approximate: bool  # read from a plot
    spread: float | None  # standard deviation
    questions: int | None = None  # None: not in the paper

    @classmethod
    def of(
        cls, text: float | str | None, spread: float | None = None, questions: int | None = None
    ) -> Value | None:
        """Parse a published value: a number, "~41" or None."""
        if text is None:
            return None
        return cls(float(str(text).lstrip("~")), isinstance(text, str), spread, questions)


@dataclass(frozen=True, slots=True)
class Ours:
    """A measured value with its 95 % interval, if there is one."""

    mean: float
    low: float | None
    high: float | None
    questions: int
    # standard deviation of a mean over several runs
    spread: float | None = None
    # of the `asked` questions, counted as wrong
    failed: int = 0
    asked: int = 0
    # no model was called
    is_simulated: bool = False

    @property
    def ends(self) -> tuple[float, float] | None:
        """Return the ends of the interval."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def answered_text(self) -> str:
        """Return "answered 191 of 200", or "" if no question failed."""
        return f"answered {self.asked - self.failed:,} of {self.asked:,}" if self.failed else ""


@dataclass(frozen=True, slots=True)
class Delta:
    """Our value minus the published one, with its 95 % interval (None: unknown).

    predicted: whether our value is within the 95 % prediction interval of the published one: where the value of a
    second sample of our size is, if both samples have the same true value.
    """

    difference: float
    low: float | None
    high: float | None
    verdict: Verdict
    predicted: bool | None = None

    @property
    def agrees_within(self) -> float | None:
        """Return the smallest margin within which the values agree, in the unit of the values."""
        return None if self.low is None or self.high is None else max(abs(self.low), abs(self.high))


def read_measured_value(metrics: Mapping[str, Json], metric: PublishedMetric) -> Ours | None:
    """Return the value of a metric, or None if the run does not define it."""
    if metric.path is None:
        return None
    questions = int(metrics["questions"])
    value = _at(metrics, metric.path)
    if isinstance(value, Mapping):  # a score with its interval
        if value.get("mean") is None:
            return None
        return Ours(value["mean"], value["low"], value["high"], value["n"])
    parts = read_parts(metrics, metric.path)
    if parts is None or not parts[1]:
        return None
    return Ours(scale_of(metric) * parts[0] / parts[1], None, None, questions)


def read_parts(metrics: Mapping[str, Json], path: str) -> tuple[float, float] | None:
    """Return the numerator and denominator of a path (1 if it is no ratio), or None if they are missing."""
    upper, _, lower = path.partition(" / ")
    numerator, denominator = _sum(metrics, upper), _sum(metrics, lower) if lower else 1.0
    return None if numerator is None or denominator is None else (numerator, denominator)


def scale_of(metric: PublishedMetric) -> float:
    """Return the factor between a metric's ratio of parts and its value."""
    return 100.0 if metric.unit == "%" and metric.path and " / " in metric.path else 1.0


def compare_metric(
    metric: PublishedMetric, published: Value, ours: Ours, margin: float = MARGIN
) -> Delta:
    """Compare our value of a metric with a published one.

    There is no verdict if no model was called, or if the paper measures something else.
    """
    if ours.is_simulated:
        return Delta(ours.mean - published.number, None, None, "no model")
    if metric.why:
        return Delta(ours.mean - published.number, None, None, "not compared")
    return compare_with_published(published, ours, metric.unit, margin)


def compare_with_published(
    published: Value, ours: Ours, unit: str, margin: float = MARGIN
) -> Delta:
    """Compare our value with a published one, with the sampling errors of both (Newcombe, 1998, method 10).

    agrees: the 95 % interval of the difference is within the margin (an equivalence test). differs: it is not, and it
    excludes 0. cannot tell: otherwise, and always below 30 questions or without our interval. not compared: seconds.
    """
    difference = ours.mean - published.number
    if unit == SECONDS:
        return Delta(difference, None, None, "not compared")
    if ours.ends is None:
        return Delta(difference, None, None, "cannot tell" if difference else "agrees")
    low, high = ours.ends
    our_errors = ours.mean - low, high - ours.mean
    below, above = _published_errors(published, ours, our_errors, unit)
    low, high = difference - hypot(our_errors[0], above), difference + hypot(our_errors[1], below)
    allowed = margin if unit == "%" else MARGIN_SHARE * abs(published.number)
    verdict: Verdict = "cannot tell"
    if ours.questions >= FEW:
        verdict = (
            "agrees"
            if -allowed < low and high < allowed
            else "differs"
            if low > 0 or high < 0
            else verdict
        )
    predicted = (
        _is_predicted_share(published, ours)
        if unit == "%"
        else _is_predicted(published, ours, our_errors, (below, above))
    )
    return Delta(difference, low, high, verdict, predicted)


def _is_predicted_share(published: Value, ours: Ours) -> bool:
    """Return whether our share is where at least 95 % of second samples of our size would be (Thatcher, 1964).

    The samples of zeros and ones have the same true share: fewer than 2.5 % miss the limits at each end, whatever it
    is. Other scores from 0 to 1, such as F1, vary less. Between two whole numbers, ours counts as the further one.
    """
    # scipy.stats needs a second to import
    from scipy.stats import betabinom

    asked: float = published.questions or ours.questions
    share = min(max(published.number / 100, 0.0), 1.0)
    if published.spread:
        # the number of questions with the variance of both questions and runs, by a share that is not 0 or 1
        smooth = (share * asked + 0.5) / (asked + 1)
        asked = 1 / (1 / asked + (published.spread / 100) ** 2 / (smooth * (1 - smooth)))
    right, wrong = share * asked, (1 - share) * asked
    count = round(ours.mean / 100 * ours.questions, 6)
    # a beta distribution needs two positive numbers
    below = betabinom.cdf(floor(count), ours.questions, right, wrong + 1) if right else 1.0
    above = betabinom.sf(ceil(count) - 1, ours.questions, right + 1, wrong) if wrong else 1.0
    return bool(min(below, above) > 0.025)


def _is_predicted(
    published: Value,
    ours: Ours,
    our_errors: tuple[float, float],
    errors: tuple[float, float],
) -> bool:
    """Return whether our value is within our and the published value's errors of it. For units other than percent."""
    ratio = abs(published.number / ours.mean) if ours.mean else 0.0
    ours_below, ours_above = (ratio * error for error in our_errors)
    difference = ours.mean - published.number
    return -hypot(errors[0], ours_below) <= difference <= hypot(errors[1], ours_above)


def wilson_interval(percent: float, questions: float) -> tuple[float, float]:
    """Return the 95 % interval of a share of questions (Wilson, 1927), in percent."""
    low, high = wilson(min(max(percent / 100, 0.0), 1.0), questions)
    return 100 * low, 100 * high


def _published_errors(
    published: Value, ours: Ours, our_errors: tuple[float, float], unit: str
) -> tuple[float, float]:
    """Return how far the published value can be above and below its true value.

    Percentages: the binomial bound. Other units: our relative error. Unknown numbers of questions: ours.
    """
    questions = published.questions or ours.questions
    if unit == "%":
        low, high = wilson_interval(published.number, questions)
        below, above = max(published.number - low, 0.0), max(high - published.number, 0.0)
    else:
        ratio = (
            abs(published.number / ours.mean) * sqrt(ours.questions / questions)
            if ours.mean
            else 0.0
        )
        below, above = (ratio * error for error in our_errors)
    extra = Z * (published.spread or 0.0)  # of its runs
    return hypot(below, extra), hypot(above, extra)


def _sum(metrics: Mapping[str, Json], expression: str) -> float | None:
    """Return the sum of a formula such as `a + b - c` over the parts that exist, or None if there are none."""
    signed = re.findall(r"(?:^|( [+-]) )(.+?)(?= [+-] |$)", expression)
    values = [
        -value if sign == " -" else value
        for sign, part in signed
        for value in _values(metrics, part)
    ]
    return sum(values) if values else None


def _values(metrics: Mapping[str, Json], path: str) -> list[float]:
    """Return the values of a path. `figures.errors, *` matches all `figures` with names that start with "errors, "."""
    folder, _, last = path.rpartition(".")
    group = _at(metrics, folder) if folder else metrics
    if not isinstance(group, Mapping):
        return []
    is_prefix, start = last.endswith("*"), last.removesuffix("*")
    named = [
        value
        for name, value in group.items()
        if name == last or (is_prefix and name.startswith(start))
    ]
    return [float(value) for value in named if isinstance(value, int | float)]


def _at(metrics: Mapping[str, Json], path: str) -> Json:
    """Return the value of a path, which can be the mapping of a score, or None if it is missing."""
    value: Json = metrics
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value
