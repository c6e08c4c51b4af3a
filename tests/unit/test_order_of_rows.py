"""The order of two rows in our runs, by the interval of their paired difference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kgqa.reproduce import question_values
from kgqa.reproduce.question_values import compare_rows
from kgqa.scoring.published_delta import PublishedMetric

EM = PublishedMetric("EM", "scores.em", "%", "")
ROWS = ([Path("first")], [Path("second")])


def order(monkeypatch: pytest.MonkeyPatch, wins: int, losses: int, n: int) -> int:
    """Return the order of two rows that differ on these numbers of questions."""
    first = [100.0] * wins + [0.0] * (n - wins)
    second = [0.0] * wins + [100.0] * losses + [0.0] * (n - wins - losses)
    values = {"first": first, "second": second}
    monkeypatch.setattr(
        question_values,
        "_read_answered",
        lambda folder, _: {str(number): share for number, share in enumerate(values[folder.name])},
    )
    return compare_rows(*ROWS, EM)


@pytest.mark.parametrize(
    ("wins", "losses", "n", "expected"),
    [
        (9, 1, 40, 1),
        (1, 9, 40, -1),
        (8, 2, 30, 0),
        (0, 0, 40, 0),
        (9, 0, 29, 0),
        (40, 0, 40, 1),
    ],
    ids=["better", "worse", "too few differ", "equal", "too few questions", "all better"],
)
def test_order_needs_an_interval_without_0(
    monkeypatch: pytest.MonkeyPatch, wins: int, losses: int, n: int, expected: int
) -> None:
    assert order(monkeypatch, wins, losses, n) == expected


def test_equal_rows_are_rarely_ordered(monkeypatch: pytest.MonkeyPatch) -> None:
    source, ordered, studies = np.random.default_rng(58), 0, 1000
    for wins, losses, _ in source.multinomial(80, [0.08, 0.08, 0.84], size=studies):
        ordered += order(monkeypatch, int(wins), int(losses), 80) != 0
    assert ordered / studies <= 0.06
