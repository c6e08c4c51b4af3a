"""Scores of repeated runs: their intervals, tests and pass@k, by hand and in simulated studies."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from kgqa.scoring.comparison import compare
from kgqa.scoring.intervals import share_interval, smooth_variance, wilson
from kgqa.scoring.repeats import (
    Shares,
    compare_repeats,
    compare_rows,
    pass_at,
    repeated_estimate,
)

STUDIES = 600
# of the logits: questions, and noise of a single reply
QUESTIONS, NOISE = 2.0, 0.5


def shares_of(*values: float | None) -> Shares:
    return {f"q{place}": value for place, value in enumerate(values)}


def sample_runs(
    source: np.random.Generator, runs: int, logits: np.ndarray, between: float
) -> list[Shares]:
    """Return runs over questions with these logits. Each run is better or worse on all of them by `between`."""
    moved = (logits + source.normal(0, between, (runs, 1))) / NOISE
    rights = source.random(moved.shape) < 1 / (1 + np.exp(-moved))
    return [shares_of(*map(float, row)) for row in rights]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runs", "questions", "mean", "between"),
    [
        pytest.param(3, 80, 0.0, 0.0, id="equal runs"),
        pytest.param(3, 80, -2.5, 0.1, id="few right, 2 points"),
        pytest.param(3, 80, 0.0, 0.3, id="6 points"),
        pytest.param(5, 80, -2.5, 0.0, id="few right, five equal runs"),
        pytest.param(5, 80, 0.0, 0.1, id="five runs, 2 points"),
        pytest.param(5, 80, -2.5, 0.3, id="few right, five runs, 6 points"),
        pytest.param(3, 200, -2.5, 0.0, id="few right, many questions"),
        pytest.param(3, 200, 0.0, 0.3, id="many questions, 6 points"),
    ],
)
def test_interval_of_repeats_covers(runs: int, questions: int, mean: float, between: float) -> None:
    source = np.random.default_rng(runs * questions)
    everyone = mean + source.normal(0, QUESTIONS, 200_000) + source.normal(0, between, 200_000)
    truth = 100 * float((1 / (1 + np.exp(-everyone / NOISE))).mean())
    covered = 0
    for _ in range(STUDIES):
        sampled = sample_runs(source, runs, mean + source.normal(0, QUESTIONS, questions), between)
        repeated = repeated_estimate(sampled)
        assert repeated is not None
        low, high = repeated.estimate.low, repeated.estimate.high
        assert low is not None
        assert high is not None
        covered += low <= truth <= high
    assert 0.93 <= covered / STUDIES <= 0.98


repeats_differ = pytest.mark.parametrize(
    ("runs", "between"),
    [
        pytest.param(3, 0.0, id="equal runs"),
        pytest.param(3, 0.3, id="6 points"),
        pytest.param(5, 0.1, id="five runs, 2 points"),
    ],
)


@pytest.mark.slow
@repeats_differ
def test_equal_methods_are_rarely_different(runs: int, between: float) -> None:
    source, alarms, studies = np.random.default_rng(runs), 0, 300
    for _ in range(studies):
        logits = source.normal(0, QUESTIONS, 80)
        tested = compare_repeats(
            sample_runs(source, runs, logits, between), sample_runs(source, runs, logits, between)
        )
        assert tested is not None
        alarms += tested.p < 0.05
    assert alarms / studies <= 0.06


def test_better_method_is_found() -> None:
    source = np.random.default_rng(1)
    logits = source.normal(0, QUESTIONS, 200)
    tested = compare_repeats(
        sample_runs(source, 3, logits + 1, 0.1), sample_runs(source, 3, logits, 0.1)
    )
    assert tested is not None
    assert tested.p < 0.05
    assert tested.difference > 0


@pytest.mark.slow
@repeats_differ
def test_interval_of_a_difference_covers(runs: int, between: float) -> None:
    better = 0.5
    source = np.random.default_rng(runs)
    everyone = source.normal(0, QUESTIONS, 200_000) + source.normal(0, between, 200_000)
    rights = [(1 / (1 + np.exp(-each / NOISE))).mean() for each in (everyone + better, everyone)]
    truth = 100 * float(rights[0] - rights[1])
    covered = 0
    for _ in range(STUDIES):
        logits = source.normal(0, QUESTIONS, 80)
        tested = compare_repeats(
            sample_runs(source, runs, logits + better, between),
            sample_runs(source, runs, logits, between),
        )
        assert tested is not None
        covered += tested.low <= truth <= tested.high
    assert 0.93 <= covered / STUDIES <= 0.98


def test_difference_is_that_of_means_over_repeats() -> None:
    # by hand: question means 1, 0.5, 0 against 0, 0.5, 0.5
    first = [shares_of(1.0, 1.0, 0.0), shares_of(1.0, 0.0, 0.0)]
    second = [shares_of(0.0, 0.0, 1.0), shares_of(0.0, 1.0, 0.0)]
    tested = compare_repeats(first, second)
    assert tested is not None
    assert (tested.n, tested.wins) == (3, (1, 1))
    assert tested.means == pytest.approx((50, 100 / 3))
    assert tested.difference == pytest.approx(50 / 3)


def test_question_counts_if_all_repeats_define_it() -> None:
    first = [shares_of(1.0, None, None), shares_of(0.0, 1.0, None)]
    tested = compare_repeats(first, [shares_of(0.0, 0.0, 1.0)])
    row = repeated_estimate(first)
    assert tested is not None
    assert row is not None
    assert (tested.n, tested.means) == (1, (50, 0))
    # as in the row of the sweep
    assert (row.estimate.n, row.estimate.mean) == (1, 50)


def test_one_run_each_is_compared_as_without_repeats() -> None:
    source = np.random.default_rng(0)
    rows = {name: source.random(30).tolist() for name in "AB"}
    (single,) = compare({"F1": rows}, seed=0)
    assert compare_rows({"F1": {name: [row] for name, row in rows.items()}}, seed=0) == [single]
    # equal repeats add nothing
    again = {name: [row] * 3 for name, row in rows.items()}
    (repeated,) = compare_rows({"F1": again}, seed=0)
    # by rounding, the permutations differ
    assert repeated.p == pytest.approx(single.p, abs=0.02)
    assert (repeated.low, repeated.high) == pytest.approx((single.low, single.high))


def test_spread_between_runs_weakens_a_difference() -> None:
    count = 100
    base = [shares_of(*[0.0] * count)]
    even = [shares_of(*[1.0] * 10, *[0.0] * (count - 10))] * 3
    lucky = [shares_of(*[1.0] * right, *[0.0] * (count - right)) for right in (28, 1, 1)]
    steady, lucky_one = compare_repeats(even, base), compare_repeats(lucky, base)
    assert steady is not None
    assert lucky_one is not None
    assert steady.difference == pytest.approx(lucky_one.difference)
    assert steady.p < 0.01
    assert steady.low > 0
    assert lucky_one.p > 0.2
    assert lucky_one.low < 0


def test_interval_of_one_run_is_that_of_its_shares() -> None:
    shares = [1.0] * 30 + [0.0] * 50
    repeated = repeated_estimate([shares_of(*shares)])
    assert repeated is not None
    low, high = share_interval(shares)
    assert (repeated.estimate.low, repeated.estimate.high) == pytest.approx(
        (100 * low, 100 * high), abs=0.05
    )


def test_spread_between_runs_widens_the_interval() -> None:
    base = [shares_of(*[1.0] * count, *[0.0] * (100 - count)) for count in (50, 50, 50)]
    spread = [shares_of(*[1.0] * count, *[0.0] * (100 - count)) for count in (30, 50, 70)]
    one, other = repeated_estimate(base), repeated_estimate(spread)
    assert one is not None
    assert other is not None
    assert one.estimate.mean == other.estimate.mean == 50
    assert other.deviation == pytest.approx(20)
    widths = [(each.estimate.high or 0) - (each.estimate.low or 0) for each in (one, other)]
    assert widths[1] > 2 * widths[0]


@pytest.mark.parametrize(
    ("shares", "is_bounded"),
    [
        ([[1, 1, 0, 1, 0, 0, 1, 1], [1, 0, 0, 1, 0, 0, 1, 0], [1, 1, 1, 1, 0, 1, 1, 1]], False),
        # Satterthwaite's formula gives 1.5, although three runs have two degrees of freedom
        ([[0, 0, 1, 0, 0, 0, 0, 0], [0, 1, 0, 0, 1, 0, 1, 1], [1, 1, 1, 1, 1, 1, 1, 0]], True),
    ],
    ids=["by the formula", "by the runs"],
)
def test_interval_is_that_of_an_analysis_of_variance(
    shares: list[list[int]], is_bounded: bool
) -> None:
    """Written with numpy, from the definitions of the two-way analysis."""
    from scipy.stats import t

    table = np.array(shares)
    runs, count = table.shape
    center, by_run, by_question = table.mean(), table.mean(axis=1), table.mean(axis=0)
    residuals = table - by_run[:, None] - by_question + center
    residual = (residuals**2).sum() / ((runs - 1) * (count - 1)) / table.size
    observed = by_run.var(ddof=1) / runs
    questions = smooth_variance(by_question.tolist()) / count
    total = questions + observed - residual
    parts = [(observed, runs - 1), (residual, (runs - 1) * (count - 1)), (questions, count - 1)]
    freedom = total**2 / sum(part**2 / own for part, own in parts)
    assert bool(freedom < runs - 1) is is_bounded
    quantile = t.ppf(0.975, max(freedom, runs - 1))
    low, high = wilson(center, center * (1 - center) / total, quantile)
    repeated = repeated_estimate([shares_of(*map(float, row)) for row in table])
    assert repeated is not None
    estimate = repeated.estimate
    assert (estimate.low, estimate.high) == pytest.approx((100 * low, 100 * high))


def test_questions_that_a_run_lacks_are_skipped() -> None:
    repeated = repeated_estimate([shares_of(1.0, None, 0.0), shares_of(1.0, 1.0, 1.0)])
    assert repeated is not None
    assert (repeated.estimate.mean, repeated.estimate.n) == (75, 2)
    assert repeated_estimate([shares_of(None)]) is None
    assert repeated_estimate([]) is None


@pytest.mark.parametrize(("k", "expected"), [(1, 50), (2, 250 / 3), (3, 100)])
def test_pass_at_k_by_hand(k: int, expected: float) -> None:
    runs = [shares_of(1.0, 1.0), shares_of(1.0, 0.0), shares_of(0.0, 0.0)]
    estimate = pass_at(k, runs)
    assert estimate is not None
    assert estimate.mean == pytest.approx(
        100 * np.mean([1 - comb(1, k) / comb(3, k), 1 - comb(2, k) / comb(3, k)])
    )
    assert estimate.mean == pytest.approx(expected)


def test_pass_at_more_runs_than_there_are_is_undefined() -> None:
    assert pass_at(2, [shares_of(1.0)]) is None
