"""Bootstrap intervals: against SciPy's, and against the truth they claim to cover."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import bootstrap

from kgqa.scoring import intervals
from kgqa.scoring.intervals import interval

FEW_VALUES = [0.0, 1.0, 0.4, 0.4, 2 / 3, 1.0, 0.0, 0.0, 1.0, 0.5, 0.25, 0.8]


@pytest.mark.parametrize("values", [FEW_VALUES, [0.0, 1.0, 1.0] * 40, [number**0.5 for number in range(200)]])
def test_it_agrees_with_scipys_percentile_bootstrap(values: list[float]) -> None:
    result = bootstrap(
        (values,),
        np.mean,
        n_resamples=20_000,
        method="percentile",
        rng=np.random.default_rng(1),
    )
    tolerance = 0.05 * float(np.std(values)) / len(values) ** 0.5 + 0.5 / len(values) * (max(values) == 1)
    low, high = interval(values, resamples=20_000)
    assert low == pytest.approx(result.confidence_interval.low, abs=tolerance)
    assert high == pytest.approx(result.confidence_interval.high, abs=tolerance)


def test_two_values_give_the_quantiles_of_a_binomial() -> None:
    # 0 or 1 with equal chance, twice: means 0, 1/2, 1 with chances 1/4, 1/2, 1/4
    assert interval([0.0, 1.0]) == (0.0, 1.0)


def test_the_seed_decides_and_the_order_of_questions_does_not() -> None:
    assert interval(FEW_VALUES, seed=3, resamples=1000) == interval(FEW_VALUES, seed=3, resamples=1000)
    assert interval(FEW_VALUES, seed=3, resamples=1000) == interval(FEW_VALUES[::-1], seed=3, resamples=1000)
    distinct = [number**0.5 for number in range(200)]
    assert interval(distinct, seed=3, resamples=1000) != interval(distinct, seed=4, resamples=1000)


@pytest.mark.parametrize("values", [[0.7], [1 / 3] * 7, [0, 0, 0]])
def test_one_value_or_equal_values_give_that_value_twice(values: list[float]) -> None:
    assert interval(values) == (values[0], values[0])


def test_chunks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = interval(FEW_VALUES, resamples=1000)
    monkeypatch.setattr(intervals, "_CELLS_PER_CHUNK", 70)
    assert interval(FEW_VALUES, resamples=1000) == whole


@pytest.mark.parametrize("values", [[], [0.5, float("nan")], [float("inf"), 0.0]])
def test_no_values_or_values_that_are_no_numbers_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        interval(values)
