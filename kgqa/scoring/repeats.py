"""Scores of repeated runs: one mean per method, with the spread between runs in its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb, fsum, sqrt

from kgqa.artifacts.metrics import Estimate
from kgqa.scoring.comparison import compare
from kgqa.scoring.intervals import Z, mean, smooth_variance, wilson

Shares = Mapping[str, float | None]  # by question


@dataclass(frozen=True)
class Repeated:
    """A score of several runs over the same questions.

    estimate: the mean of all runs in percent. means: those of each run. deviation: between the runs, in points.
    """

    estimate: Estimate
    means: tuple[float, ...]
    deviation: float


@dataclass(frozen=True)
class _Variance:
    """The variance of a grand mean by its parts: of the questions, and between runs, which is at least 0.

    noise: the sum of squares of the estimates of `between`, each by its degrees of freedom. count: of questions.
    """

    questions: float
    between: float
    noise: float
    count: int

    @property
    def total(self) -> float:
        return self.questions + self.between

    @property
    def freedom(self) -> float:
        """Return the degrees of freedom (Satterthwaite, 1946)."""
        noise = self.noise + self.questions**2 / max(self.count - 1, 1)
        return max(self.total**2 / noise, 1.0) if noise else float(max(self.count - 1, 1))


def average_shares(runs: Sequence[Shares]) -> dict[str, float | None]:
    """Return the mean share of each question over the runs that define it."""
    return {key: mean(run.get(key) for run in runs) for key in runs[0]} if runs else {}


def repeated_estimate(runs: Sequence[Shares]) -> Repeated | None:
    """Return a score of repeated runs, or None if no question is defined in all of them.

    The interval is Wilson's, for the number of zeros and ones with the variance of the mean. The variance is that of
    the questions and that between runs, by a two-way analysis of variance. If runs differ by more than their questions
    explain, the quantile is Student's.
    """
    table = _collect(runs)
    if not table:
        return None
    count = len(table[0])
    center = fsum(map(fsum, table)) / (len(table) * count)
    variance = _analyze(table)
    spread = center * (1 - center)
    size = spread / variance.total if spread and variance.total else count
    low, high = wilson(center, size, _quantile(variance))
    means = tuple(100 * fsum(row) / count for row in table)
    estimate = Estimate(mean=100 * center, low=100 * low, high=100 * high, n=count)
    return Repeated(estimate, means, _deviation(means))


def compare_repeats(
    first: Sequence[Shares], second: Sequence[Shares], seed: int = 0
) -> tuple[float, float] | None:
    """Return p and the mean difference of two methods, or None without a common question.

    p is the larger one of two tests: the paired test over questions, of the means over runs, and Student's t with the
    variance between runs. So a lucky run does not make a method better.
    """
    own, other = average_shares(first), average_shares(second)
    tested = compare(
        {"": {"first": list(own.values()), "second": [other.get(key) for key in own]}}, seed
    )
    if not tested:
        return None
    difference = tested[0]
    parts = [_analyze(table) for table in map(_collect, (first, second)) if len(table) > 1]
    between, noise = fsum(part.between for part in parts), fsum(part.noise for part in parts)
    variance = _Variance(
        (difference.deviation / 100) ** 2 / difference.n, between, noise, difference.n
    )
    p = difference.p
    if between:
        p = max(p, _student(difference.difference / 100, variance))
    return p, difference.difference


def pass_at(k: int, runs: Sequence[Shares]) -> Estimate | None:
    """Return the share of questions that at least one of `k` runs has right (Chen et al., 2021), or None.

    The shares are 0 or 1. Of more than k runs, the mean over all choices of k is taken.
    """
    table = _collect(runs)
    if not table or k > len(table):
        return None
    total = len(table)
    right = [round(fsum(column)) for column in zip(*table, strict=True)]
    shares = [1 - comb(total - count, k) / comb(total, k) for count in right]
    only = {f"{place}": share for place, share in enumerate(shares)}
    repeated = repeated_estimate([only])
    return repeated.estimate if repeated else None


def _collect(runs: Sequence[Shares]) -> list[list[float]]:
    """Return a row per run, over the questions that all of them define."""
    first = runs[0] if runs else {}
    keys = [key for key in first if all(run.get(key) is not None for run in runs)]
    return [[float(run[key] or 0) for key in keys] for run in runs] if keys else []


def _analyze(table: Sequence[Sequence[float]]) -> _Variance:
    runs, count = len(table), len(table[0])
    by_question = [fsum(column) / runs for column in zip(*table, strict=True)]
    questions = smooth_variance(by_question) / count
    if runs == 1 or count == 1:
        return _Variance(questions, 0.0, 0.0, count)
    center = fsum(by_question) / count
    by_run = [fsum(row) / count for row in table]
    residuals = [
        (share - own - run + center) ** 2
        for row, run in zip(table, by_run, strict=True)
        for share, own in zip(row, by_question, strict=True)
    ]
    residual = fsum(residuals) / ((runs - 1) * (count - 1)) / (count * runs)
    observed = fsum((run - center) ** 2 for run in by_run) / ((runs - 1) * runs)
    noise = observed**2 / (runs - 1) + residual**2 / ((runs - 1) * (count - 1))
    return _Variance(questions, max(observed - residual, 0.0), noise, count)


def _quantile(variance: _Variance) -> float:
    """Return the factor of the standard error in a 95 % interval."""
    from scipy.stats import t

    return float(t.ppf(0.975, variance.freedom)) if variance.between else Z


def _student(difference: float, variance: _Variance) -> float:
    from scipy.stats import t

    return float(2 * t.sf(abs(difference) / sqrt(variance.total), variance.freedom))


def _deviation(values: Sequence[float]) -> float:
    center = fsum(values) / len(values)
    return (
        sqrt(fsum((value - center) ** 2 for value in values) / (len(values) - 1))
        if len(values) > 1
        else 0.0
    )
