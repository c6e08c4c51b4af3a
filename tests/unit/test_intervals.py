"""Intervals of shares, means and paired differences cover the true value as often as they promise."""

from __future__ import annotations

from itertools import product
from math import exp, lgamma, log

import numpy as np
import pytest

from kgqa.scoring.intervals import (
    difference_interval,
    estimate,
    pool_interval,
    share_interval,
    tango,
    wilson,
)

# of F1 between 0 and 1
FRACTIONS = np.array([0.2, 0.25, 2 / 7, 1 / 3, 0.4, 0.5, 4 / 7, 2 / 3, 0.8, 6 / 7])
RUNS = 3000


@pytest.mark.parametrize("n", [20, 40, 80, 500])
@pytest.mark.parametrize("percent", [1, 2.5, 5, 50, 97.5])
def test_shares_are_covered_exactly(n: int, percent: float) -> None:
    from scipy.stats import binom

    truth = percent / 100
    intervals = [share_interval([1.0] * right + [0.0] * (n - right)) for right in range(n + 1)]
    covered = [low <= truth <= high for low, high in intervals]
    assert 0.91 <= binom.pmf(range(n + 1), n, truth)[covered].sum() <= 0.985


def test_interval_of_zeros_and_ones_is_wilsons() -> None:
    assert share_interval([0.0] * 80) == pytest.approx((0.0, 0.0458), abs=1e-4)
    assert share_interval([1.0] * 50 + [0.0] * 50) == pytest.approx((0.4038, 0.5962), abs=1e-4)
    assert share_interval([1.0] * 7 + [0.0] * 3) == pytest.approx(wilson(0.7, 10))
    assert estimate([None, 1.0, 1.0]).high == 100


def test_pooled_share_is_parts_by_wholes() -> None:
    assert pool_interval([(1, 4), (2, 8)] * 5) == (0.25, 0.25)
    # of 80 parts of which half are 1, as Wilson's interval
    assert pool_interval([(0, 1), (1, 1)] * 40) == pytest.approx(wilson(0.5, 80), abs=0.02)
    with pytest.raises(ValueError, match="not 0"):
        pool_interval([(1, 0)])


def test_pooled_interval_leaves_2_5_percent_each_side() -> None:
    # of 78 fair coins, 2.7 % of samples have at most 30 heads, and 1.5 % at most 29
    assert pool_interval([(0, 1), (1, 1)] * 39) == pytest.approx((30 / 78, 48 / 78))


@pytest.mark.parametrize("shares", [[], [0.5, float("nan")], [1.5], [-0.1]])
def test_values_that_are_no_shares_are_rejected(shares: list[float]) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        share_interval(shares)


@pytest.mark.slow
@pytest.mark.parametrize("n", [80, 200])
@pytest.mark.parametrize(
    ("values", "chances"),
    [
        ([1 / 15, 2 / 15, 0.2, 4 / 15], [0.25, 0.25, 0.25, 0.25]),  # precision of 15 passages
        ([0, 0.5, 1], [0.1, 0.3, 0.6]),  # recall of two gold passages
        ([0, 0.5, 1], [0.02, 0.08, 0.9]),
    ],
    ids=["precision", "recall", "high recall"],
)
def test_means_of_few_values_are_covered(n: int, values: list[float], chances: list[float]) -> None:
    samples = np.random.default_rng(n).choice(values, size=(RUNS, n), p=chances)
    truth = float(np.dot(values, chances))
    covered = [low <= truth <= high for low, high in map(share_interval, samples.tolist())]
    assert 0.93 <= np.mean(covered) <= 0.97


def sample_f1(
    source: np.random.Generator, zeros: float, ones: float, shape: tuple[int, int]
) -> np.ndarray:
    kind, between = source.random(shape), source.choice(FRACTIONS, size=shape)
    return np.where(kind < zeros, 0.0, np.where(kind < zeros + ones, 1.0, between))


@pytest.mark.slow
@pytest.mark.parametrize("n", [80, 200])
@pytest.mark.parametrize(
    ("zeros", "ones"), [(0.5, 0.3), (0.3, 0.5), (0.8, 0.1), (0.95, 0.02), (0.02, 0.95)]
)
def test_means_of_f1_are_covered(n: int, zeros: float, ones: float) -> None:
    truth = ones + (1 - zeros - ones) * FRACTIONS.mean()
    samples = sample_f1(np.random.default_rng(n), zeros, ones, (RUNS, n))
    covered = [low <= truth <= high for low, high in map(share_interval, samples.tolist())]
    assert 0.93 <= np.mean(covered) <= 0.97


@pytest.mark.slow
@pytest.mark.parametrize("n", [80, 200])
@pytest.mark.parametrize(
    ("equal", "shift"), [(0.5, 0.0), (0.5, 0.3), (0.8, 0.0), (0.8, 0.3), (0.9, 0.3)]
)
def test_differences_of_f1_are_covered(n: int, equal: float, shift: float) -> None:
    source = np.random.default_rng(n)
    first = sample_f1(source, 0.5, 0.35, (RUNS, n))
    second = sample_f1(source, 0.5 - shift / 2, 0.35 + shift / 2, (RUNS, n))
    moved = np.where(source.random((RUNS, n)) < equal, 0.0, first - second)
    truth = -(1 - equal) * shift / 2
    covered = [low <= truth <= high for low, high in map(difference_interval, moved.tolist())]
    assert 0.93 <= np.mean(covered) <= 0.97


def test_interval_of_graded_differences_by_hand() -> None:
    # the variance is that of the shares (1 + d) / 2 with a tenth of one further 0 and 1
    differences = [0.5, 0.25, -0.25, 0.0, 0.0, 1 / 3, -0.5, 0.75, 0.0, 0.2] * 3
    expected = (0.001624783823, 0.250986188696)
    assert difference_interval(differences) == pytest.approx(expected)


@pytest.mark.parametrize("n", [40, 80])
@pytest.mark.parametrize(
    ("better", "worse"), [(0.05, 0.05), (0.1, 0.02), (0.1, 0.1), (0.2, 0.1), (0.3, 0.2)]
)
def test_paired_differences_are_covered_exactly(n: int, better: float, worse: float) -> None:
    covered = 0.0
    for gains, losses in product(range(n + 1), repeat=2):
        if gains + losses > n:
            continue
        equal = n - gains - losses
        ways = lgamma(n + 1) - lgamma(gains + 1) - lgamma(losses + 1) - lgamma(equal + 1)
        chance = exp(
            ways + gains * log(better) + losses * log(worse) + equal * log(1 - better - worse)
        )
        if chance > 1e-7:
            low, high = tango(gains, losses, n)
            covered += chance * (low <= better - worse <= high)
    assert 0.93 <= covered <= 0.97


@pytest.mark.parametrize(
    ("gains", "losses", "n", "expected"),
    [
        (0, 0, 80, (-0.0458, 0.0458)),
        (10, 2, 80, (0.0178, 0.1951)),
        (3, 0, 3, (0.0, 1.0)),
        (0, 3, 3, (-1.0, 0.0)),
    ],
)
def test_tango_intervals(gains: int, losses: int, n: int, expected: tuple[float, float]) -> None:
    low, high = tango(gains, losses, n)
    assert -1 <= low <= (gains - losses) / n <= high <= 1
    if n > 3:
        assert (low, high) == pytest.approx(expected, abs=2e-4)
    assert tango(losses, gains, n) == pytest.approx((-high, -low))
