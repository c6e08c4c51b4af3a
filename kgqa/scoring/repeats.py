"""Scores of repeated runs: one mean per method, with the spread between runs in its interval."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb, fsum, inf, sqrt

from kgqa.artifacts.metrics import Estimate
from kgqa.scoring.comparison import ALPHA, HOLM, Difference, RepeatSpread, compare, correct
from kgqa.scoring.intervals import Z, difference_interval, mean, smooth_variance, wilson

Shares = Mapping[str, float | None]  # by question
# of one run, or of its repeats: a share per question, in the same order
Rows = Sequence[Sequence[float | None]]
# equal runs have a lower variance
_ROUNDING = 1e-18


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

    noise: the sum of squares of the estimates of `between`, each by its degrees of freedom. count: of questions. runs:
    the fewest of a method with several. residual: what equal runs would differ by, because their questions do.
    """

    questions: float
    between: float
    noise: float
    count: int
    runs: int
    residual: float = 0.0

    @property
    def total(self) -> float:
        return self.questions + self.between

    @property
    def freedom(self) -> float:
        """Return the degrees of freedom (Satterthwaite, 1946).

        `between` is a difference of estimates, for which the formula can be below the fewest degrees of its parts.
        """
        noise = self.noise + self.questions**2 / max(self.count - 1, 1)
        fewest = float(max(min(self.runs, self.count) - 1, 1))
        return max(self.total**2 / noise, fewest) if noise else float(max(self.count - 1, 1))

    def measure_spread(self) -> RepeatSpread:
        """Return what a plan needs to know about the repeats of one row.

        Of equal runs, `between` is above 0 in almost half of all studies. So it counts only if an F test shows it.
        """
        from scipy.stats import f

        degrees = self.runs - 1
        ratio = (self.between + self.residual) / self.residual if self.residual else inf
        differs = f.sf(ratio, degrees, degrees * (self.count - 1)) < ALPHA
        between = self.between if differs else 0.0
        return RepeatSpread(self.runs, self.count * self.residual, between)


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
) -> Difference | None:
    """Compare two methods with one run or more as `compare_rows`. Return None without a common question."""
    if not first or not second:
        return None
    keys = list(first[0])
    rows = {
        name: [[run.get(key) for key in keys] for run in runs]
        for name, runs in (("first", first), ("second", second))
    }
    return next(iter(compare_rows({"": rows}, seed)), None)


def compare_rows(
    scores: Mapping[str, Mapping[str, Rows]],
    seed: int,
    *,
    alpha: float = ALPHA,
    correction: str = HOLM,
    baseline: str | None = None,
    bounds: Collection[str] = (),
    lower_is_better: Collection[str] = (),
) -> list[Difference]:
    """Compare every pair of rows in every metric as `compare`. A row has the shares of each of its repeats.

    The mean of each question over the repeats is compared, and the test is over questions (Miller, 2024: "Adding Error
    Bars to Evals"). If the repeats differ by more than their questions explain, the interval contains that variance,
    and p is the larger one of this test and of Student's t with it. So a lucky run does not make a method better.
    """
    means = {
        metric: {name: average_rows(repeats) for name, repeats in rows.items()}
        for metric, rows in scores.items()
    }
    differences = compare(
        means,
        seed,
        correction="none",
        baseline=baseline,
        bounds=bounds,
        lower_is_better=lower_is_better,
    )
    return correct(
        [
            _add_spread(
                each,
                [means[each.metric][name] for name in (each.first, each.second)],
                [scores[each.metric][name] for name in (each.first, each.second)],
            )
            for each in differences
        ],
        alpha=alpha,
        correction=correction,
    )


def average_rows(repeats: Rows) -> list[float | None]:
    """Return the mean share of each question, None if a repeat does not define it: as in `repeated_estimate`."""
    return [None if None in column else mean(column) for column in zip(*repeats, strict=True)]


def _add_spread(
    difference: Difference, means: Sequence[Sequence[float | None]], rows: Sequence[Rows]
) -> Difference:
    """Return a difference with the variance between the repeats of its two rows. means: of their questions."""
    tables = [
        _collect([{f"{place}": share for place, share in enumerate(row)} for row in repeats])
        for repeats in rows
    ]
    parts = [_analyze(table) for table in tables if len(table) > 1]
    difference = replace(difference, repeats=tuple(part.measure_spread() for part in parts))
    between, noise = fsum(part.between for part in parts), fsum(part.noise for part in parts)
    if not between:
        return difference
    questions = (difference.deviation / 100) ** 2 / difference.n
    runs = min(part.runs for part in parts)
    variance = _Variance(questions, between, noise, difference.n, runs)
    moved = [
        mine - theirs
        for mine, theirs in zip(*means, strict=True)
        if mine is not None and theirs is not None
    ]
    low, high = difference_interval(moved, between=between, z=_quantile(variance))
    p = max(difference.p, _student(difference.difference / 100, variance))
    return replace(difference, p=p, low=100 * low, high=100 * high, has_spread=True)


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
        return _Variance(questions, 0.0, 0.0, count, runs)
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
    between = observed - residual
    # equal runs have a sum that is not exactly 0
    between = between if between > _ROUNDING else 0.0
    return _Variance(questions, between, noise, count, runs, residual)


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
