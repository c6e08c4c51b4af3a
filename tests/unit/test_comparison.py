"""Paired tests: against SciPy and statsmodels, and by simulation against what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import permutation_test

from kgqa.scoring.comparison import compare, holm, mcnemar, permutation, questions_needed

F1_LIKE = [0.0, 0.0, 0.0, 0.4, 0.5, 2 / 3, 1.0, 1.0]


@pytest.mark.parametrize(
    ("wins", "losses", "expected"),  # statsmodels 0.15.0, stats.contingency_tables.mcnemar(exact=True)
    [(10, 2, 0.03857421875), (5, 5, 1.0), (0, 7, 0.015625), (30, 12, 0.007915897334896727), (1, 0, 1.0), (0, 0, 1.0)],
)
def test_mcnemar_is_statsmodels_exact_test(wins: int, losses: int, expected: float) -> None:
    assert mcnemar(wins, losses) == pytest.approx(expected, abs=1e-12)


def test_holm_is_statsmodels_correction() -> None:
    # statsmodels 0.15.0, stats.multitest.multipletests(method="holm")
    assert holm([0.01, 0.04, 0.03, 0.005, 0.2, 0.6]) == pytest.approx([0.05, 0.12, 0.12, 0.03, 0.4, 0.6])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.parametrize(
    ("difference", "deviation", "expected"),  # statsmodels 0.15.0, NormalIndPower(ddof=0).solve_power(ratio=0), ceiled
    [(2, 30, 1766), (5, 40, 503), (1, 25, 4906), (-2, 30, 1766), (100, 1, 2)],
)
def test_questions_needed_are_statsmodels_normal_power(difference: float, deviation: float, expected: int) -> None:
    assert questions_needed(difference, deviation) == expected


def test_no_spread_says_nothing_about_the_number_of_questions() -> None:
    assert questions_needed(2.0, 0.0) is None
    with pytest.raises(ValueError, match="difference of 0"):
        questions_needed(0.0, 30.0)


@pytest.mark.parametrize("shift", [0.0, 0.05, 0.12])
def test_the_permutation_test_is_scipys(shift: float) -> None:
    generator = np.random.default_rng(5)
    moved = [a - b + shift * (a > 0.6) for a, b in generator.choice(F1_LIKE, size=(80, 2))]
    reference = permutation_test(
        (moved,),
        np.mean,
        permutation_type="samples",
        n_resamples=9_999,
        rng=np.random.default_rng(2),
    ).pvalue
    assert permutation(moved, seed=0) == pytest.approx(reference, abs=0.02)  # four standard errors at p = 1/2


def test_few_differences_have_the_p_of_all_their_signs() -> None:
    # three equal differences: all of one sign in 2 of 8 cases
    assert permutation([0.5, 0.5, 0.5, 0.0], seed=0, resamples=50_000) == pytest.approx(0.25, abs=0.01)
    assert permutation([0.0, 0.0], seed=0) == 1.0


def test_the_seed_decides_and_the_order_of_questions_does_not() -> None:
    moved = [0.5, -0.25, 1.0, 0.4, -0.1] * 5
    assert permutation(moved, seed=1) == permutation(moved[::-1], seed=1)


def test_every_pair_of_runs_is_compared_in_every_metric_and_corrected_together() -> None:
    right, wrong = [1.0] * 20, [0.0] * 20
    half = [1.0, 0.5] * 10
    found = compare({"EM": {"A": right, "B": wrong, "C": right}, "F1": {"A": right, "B": half, "C": half}}, seed=0)
    assert [(each.metric, each.first, each.second) for each in found] == [
        (metric, *pair) for metric in ("EM", "F1") for pair in (("A", "B"), ("A", "C"), ("B", "C"))
    ]
    first = found[0]
    assert (first.n, first.means, first.difference, first.wins, first.binary) == (
        20,
        (100.0, 0.0),
        100.0,
        (20, 0),
        True,
    )
    assert first.p == pytest.approx(2 / 2**20)
    assert first.adjusted == pytest.approx(6 * first.p)
    assert first.significant
    assert first.effect is None  # B never wins: no odds
    assert [each.adjusted for each in found] == holm([each.p for each in found])


def test_effects_are_odds_of_right_or_wrong_and_cohens_d_of_shares() -> None:
    em = compare({"EM": {"A": [1.0, 1.0, 1.0, 0.0], "B": [0.0, 0.0, 0.0, 1.0]}}, seed=0)[0]
    assert (em.binary, em.effect) == (True, 3.0)
    shares = compare({"F1": {"A": [0.5, 0.75, 1.0], "B": [0.0, 0.25, 0.75]}}, seed=0)[0]
    moved = np.array([50.0, 50.0, 25.0])
    assert shares.effect == pytest.approx(moved.mean() / moved.std(ddof=1))
    assert shares.deviation == pytest.approx(moved.std(ddof=1))


def test_a_question_without_a_verdict_on_one_side_is_left_out_of_the_pair() -> None:
    found = compare({"judge": {"A": [1.0, None, 1.0, 0.0], "B": [0.0, 1.0, None, 0.0]}}, seed=0)
    assert [(each.n, each.wins) for each in found] == [(2, (1, 0))]
    assert compare({"judge": {"A": [None], "B": [1.0]}}, seed=0) == []
