"""A published value beside ours: reading ours from `metrics.json`, and how far the two are apart."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kgqa.types import Json

FEW = 30  # questions; below that, a bootstrap interval says little
CLOSE = 2.0  # points in percent
CLOSE_WIDTHS = 2.0  # half-widths of our interval
SAME_SHARE, CLOSE_SHARE = 0.02, 0.10  # of the published value, where there is no interval

Verdict = Literal["OK", "close", "off", "few", ""]  # "": nothing to compare


@dataclass(frozen=True, slots=True)
class Metric:
    """`path`: of a value of metrics.json, or sums and one ratio of such; None: nothing there corresponds to it."""

    name: str
    path: str | None
    unit: str
    why: str


@dataclass(frozen=True, slots=True)
class Value:
    """`approximate`: read from a plot. `spread`: the published standard deviation, None where there is none."""

    number: float
    approximate: bool
    spread: float | None

    @classmethod
    def of(cls, written: float | str | None, spread: float | None = None) -> Value | None:
        """Parse a published value: a number, "~41" or None."""
        if written is None:
            return None
        return cls(float(str(written).lstrip("~")), isinstance(written, str), spread)


@dataclass(frozen=True, slots=True)
class Ours:
    """A measured value; `low` and `high` are the ends of its 95 % interval, None where it has none.

    spread: the standard deviation, of a mean over several runs.
    """

    mean: float
    low: float | None
    high: float | None
    questions: int
    spread: float | None = None


def read_measured_value(metrics: Mapping[str, Json], metric: Metric) -> Ours | None:
    """Return None where the run does not define it."""
    if metric.path is None:
        return None
    questions = int(metrics["questions"])
    value = _at(metrics, metric.path)
    if isinstance(value, Mapping):  # a score with its interval
        if value.get("mean") is None:
            return None
        return Ours(value["mean"], value["low"], value["high"], value["n"])
    upper, _, lower = metric.path.partition(" / ")
    numerator = _sum(metrics, upper)
    if not lower:
        return None if numerator is None else Ours(numerator, None, None, questions)
    denominator = _sum(metrics, lower)
    if numerator is None or not denominator:
        return None
    return Ours((100 if metric.unit == "%" else 1) * numerator / denominator, None, None, questions)


def closeness(published: Value, ours: Ours) -> Verdict:
    """Return OK within our interval, close within two of its half-widths or two points, off beyond; few: too few
    questions.

    Without an interval: OK within 2 % of the published value, close within 10 %.
    """
    if ours.questions < FEW:
        return "few"
    apart = abs(ours.mean - published.number)
    if ours.low is None or ours.high is None:
        scale = abs(published.number)
        return "OK" if apart <= SAME_SHARE * scale else "close" if apart <= CLOSE_SHARE * scale else "off"
    if ours.low <= published.number <= ours.high:
        return "OK"
    return "close" if apart <= max(CLOSE, CLOSE_WIDTHS * (ours.high - ours.low) / 2) else "off"


def _sum(metrics: Mapping[str, Json], written: str) -> float | None:
    """Of the parts that are there, `a + b - c`; None where none is."""
    signed = re.findall(r"(?:^|( [+-]) )(.+?)(?= [+-] |$)", written)
    values = [-value if sign == " -" else value for sign, part in signed for value in _values(metrics, part)]
    return sum(values) if values else None


def _values(metrics: Mapping[str, Json], path: str) -> list[float]:
    """Return `figures.errors, *` stands for everything in `figures` whose name begins so."""
    folder, _, last = path.rpartition(".")
    if not last.endswith("*"):
        figure = _at(metrics, path)
        return [float(figure)] if isinstance(figure, int | float) else []
    group = _at(metrics, folder) if folder else metrics
    pattern = re.escape(last[:-1])
    named = group.items() if isinstance(group, Mapping) else ()
    return [float(value) for name, value in named if re.match(pattern, name) and isinstance(value, int | float)]


def _at(metrics: Mapping[str, Json], path: str) -> Json:
    """Return the value at the end of a path, which may be a score's mapping; None where there is none."""
    value: Json = metrics
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value
