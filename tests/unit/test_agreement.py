"""Agreement of verdicts: against statsmodels' kappa, and where it is not defined."""

from __future__ import annotations

import pytest

from kgqa.artifacts.metrics import Agreement
from kgqa.scoring.agreement import agreement, cohen_kappa


def pairs(table: list[list[int]]) -> list[tuple[int, int]]:
    return [
        (row, column) for row, counts in enumerate(table) for column, count in enumerate(counts) for _ in range(count)
    ]


# statsmodels 0.15.0, stats.inter_rater.cohens_kappa
KAPPAS = [
    ([[20, 5], [10, 15]], 0.4),
    ([[45, 15], [25, 15]], 0.13043478260869554),
    ([[44, 5, 1], [7, 20, 3], [9, 5, 6]], 0.49152542372881347),
]


@pytest.mark.parametrize(("table", "expected"), KAPPAS)
def test_kappa_is_statsmodels_kappa(table: list[list[int]], expected: float) -> None:
    assert cohen_kappa(pairs(table)) == pytest.approx(expected, abs=1e-12)


def test_two_who_always_say_the_same_one_thing_have_no_kappa() -> None:
    assert cohen_kappa([("correct", "correct")] * 9) is None
    assert cohen_kappa([]) is None


def test_perfect_and_opposite_verdicts_are_1_and_minus_1() -> None:
    assert cohen_kappa([(0, 0), (1, 1)]) == 1.0
    assert cohen_kappa([(0, 1), (1, 0)]) == -1.0


def test_a_missing_verdict_on_either_side_is_left_out_and_counted() -> None:
    measured = agreement(["correct", None, "incorrect", "correct"], ["correct", "correct", None, "incorrect"])
    confusion = {"correct": {"correct": 1, "incorrect": 1}, "incorrect": {"correct": 0, "incorrect": 0}}
    assert measured == Agreement(n=2, left_out=2, percent=50.0, kappa=0.0, confusion=confusion)


def test_nothing_to_compare_is_none_and_not_zero() -> None:
    measured = agreement([None, None], ["correct", None])
    assert (measured.n, measured.percent, measured.kappa, measured.confusion) == (0, None, None, {})
