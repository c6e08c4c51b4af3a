"""The order of two rows in our runs, by the interval of their paired difference."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kgqa.artifacts.run import MADE_UP
from kgqa.report.reproduction import Order
from kgqa.reproduce import comparison, question_values
from kgqa.reproduce.question_values import compare_rows
from kgqa.scoring.published_delta import PublishedMetric, Value

EM = PublishedMetric("EM", "scores.em", "%", "")
ROWS = ([Path("first")], [Path("second")])


def order(monkeypatch: pytest.MonkeyPatch, wins: int, losses: int, n: int) -> int:
    """Return the order of two rows that differ on these numbers of questions."""
    first = [100.0] * wins + [0.0] * (n - wins)
    second = [0.0] * wins + [100.0] * losses + [0.0] * (n - wins - losses)
    values = {"first": first, "second": second}
    monkeypatch.setattr(
        question_values,
        "_read_compared",
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


CALLS = PublishedMetric("calls", "cost.method.calls_per_question", "", "")


@pytest.mark.parametrize(("metric", "expected"), [(EM, 1), (CALLS, 0)], ids=["score", "cost"])
def test_failed_questions_count_in_the_order_of_scores(
    monkeypatch: pytest.MonkeyPatch, metric: PublishedMetric, expected: int
) -> None:
    """Both rows have the same values, but the second one failed on half of the questions."""
    first = {str(number): (100.0, 1.0, True) for number in range(60)}
    second = {**first, **{str(number): (0.0, 1.0, False) for number in range(30)}}
    values = {"first": first, "second": second}
    monkeypatch.setattr(question_values, "_read", lambda folder, _: values[folder.name])
    assert compare_rows(*ROWS, metric) == expected


@pytest.mark.slow
def test_equal_rows_are_rarely_ordered(monkeypatch: pytest.MonkeyPatch) -> None:
    source, ordered, studies = np.random.default_rng(58), 0, 1000
    for wins, losses, _ in source.multinomial(80, [0.08, 0.08, 0.84], size=studies):
        ordered += order(monkeypatch, int(wins), int(losses), 80) != 0
    assert ordered / studies <= 0.06


def finished_cell(row: str, published: float, note: str = "") -> Any:
    value = Value(published, approximate=False, spread=None)
    cell = SimpleNamespace(column="2Wiki", values=[value], overrides=())
    finished = SimpleNamespace(simulation_note=note)
    run = SimpleNamespace(run=Path(row), metrics=True, finished=finished)
    return SimpleNamespace(published=cell, tests=[run], overrides=())


@pytest.mark.parametrize(
    ("first", "second", "same", "other", "pairs"),
    [
        pytest.param(33.3, 30.0, 1, 0, 1, id="first is better"),
        pytest.param(30.0, 33.3, 0, 1, 1, id="second is better"),
        pytest.param(33.3, 33.2, 1, 0, 1, id="one digit apart"),
        pytest.param(33.3, 33.25, 0, 0, 0, id="within the rounding"),
    ],
)
def test_order_of_the_paper_is_compared(
    monkeypatch: pytest.MonkeyPatch,
    first: float,
    second: float,
    same: int,
    other: int,
    pairs: int,
) -> None:
    """In our runs the first row is better."""
    monkeypatch.setattr(comparison, "compare_rows", lambda *_: 1)
    table: Any = SimpleNamespace(metrics=[EM], columns=["2Wiki"])
    cells = [finished_cell("first", first), finished_cell("second", second)]
    orders = comparison._orders(table, cells)
    expected = [Order("2Wiki", "EM", pairs, same, other, 0)] if pairs else []
    assert orders == expected


def test_rows_without_a_model_have_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "compare_rows", lambda *_: 1)
    table: Any = SimpleNamespace(metrics=[EM], columns=["2Wiki"])
    cells = [finished_cell("first", 33.3), finished_cell("second", 30.0, MADE_UP)]
    assert comparison._orders(table, cells) == []
