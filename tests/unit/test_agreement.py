"""Agreement of verdicts, against statsmodels' kappa (0.15.0, stats.inter_rater.cohens_kappa)."""

from __future__ import annotations

import pytest

from kgqa.artifacts.metrics import Agreement
from kgqa.scoring.comparison import agreement, cohen_kappa


def pairs(table: list[list[int]]) -> list[tuple[int, int]]:
    return [
        (row, column) for row, counts in enumerate(table) for column, count in enumerate(counts) for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ([[20, 5], [10, 15]], 0.4),
        ([[45, 15], [25, 15]], 0.13043478260869554),
        ([[44, 5, 1], [7, 20, 3], [9, 5, 6]], 0.49152542372881347),
        ([[1, 0], [0, 1]], 1.0),
        ([[0, 1], [1, 0]], -1.0),
    ],
)
def test_kappa(table: list[list[int]], expected: float) -> None:
    assert cohen_kappa(pairs(table)) == pytest.approx(expected, abs=1e-12)


def test_one_label_only_has_no_kappa() -> None:
    assert cohen_kappa([("correct", "correct")] * 9) is None
    assert cohen_kappa([]) is None


def test_missing_verdicts_are_counted() -> None:
    measured = agreement(["correct", None, "incorrect", "correct"], ["correct", "correct", None, "incorrect"])
    confusion = {"correct": {"correct": 1, "incorrect": 1}, "incorrect": {"correct": 0, "incorrect": 0}}
    assert measured == Agreement(n=2, left_out=2, percent=50.0, kappa=0.0, confusion=confusion)
    nothing = agreement([None, None], ["correct", None])
    assert (nothing.n, nothing.percent, nothing.kappa, nothing.confusion) == (0, None, None, {})
