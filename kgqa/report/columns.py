"""The figures that stand beside each other in a sweep's table: scores, and what they cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kgqa.artifacts.metrics import Estimate, Metrics


@dataclass(frozen=True)
class Measured:
    """A figure of a cell; `low` and `high` only of a score."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Column:
    label: str
    of: Callable[[Metrics], Measured | None]
    shares: str | None  # what of a question it is the mean of; None for a cost


def _estimate(score: Estimate | None) -> Measured | None:
    return None if score is None or score.mean is None else Measured(score.mean, score.low, score.high)


def tokens(metrics: Metrics) -> Measured | None:
    return _each(metrics, metrics.cost.method.prompt_tokens + metrics.cost.method.output_tokens)


def dollars(metrics: Metrics) -> Measured | None:
    return _each(metrics, metrics.cost.method.usd)


def _each(metrics: Metrics, total: float | None) -> Measured | None:
    return None if total is None else Measured(total / metrics.questions, None, None)


def _count_failed(metrics: Metrics) -> Measured | None:
    return Measured(metrics.failed, None, None) if metrics.failed else None


# costs as if nothing had been cached, so that the order in which cells ran changes none
COLUMNS = (
    Column("EM", lambda metrics: _estimate(metrics.scores.em), "em"),
    Column("F1", lambda metrics: _estimate(metrics.scores.f1), "f1"),
    Column("containment", lambda metrics: _estimate(metrics.scores.containment), "containment"),
    Column("judge", lambda metrics: _estimate(metrics.judge.accuracy) if metrics.judge else None, "judge"),
    Column("support recall", lambda metrics: _estimate(metrics.scores.support_recall), "support_recall"),
    Column("failed questions", _count_failed, None),  # there where a cell has some: they count as wrong
    Column("calls / question", lambda metrics: _each(metrics, metrics.cost.method.calls), None),
    Column("tokens / question", tokens, None),
    Column("model s / question", lambda metrics: _each(metrics, metrics.cost.method.seconds), None),
    Column("USD / question", dollars, None),
)
