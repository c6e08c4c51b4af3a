"""How far published values and ours are apart."""

from __future__ import annotations

import pytest

from kgqa.reproduce.tables import load_table
from kgqa.scoring.published_delta import Metric, Ours, Value, closeness, read_measured_value

METRICS = {
    "questions": 40,
    "scores": {"em": {"mean": 50.0, "low": 40.0, "high": 62.0, "n": 40}, "f1": {"mean": None, "n": 0}},
    "figures": {"errors, off-topic": 1.0, "errors, redundancy": 2.0, "errors at step 1": 3.0},
    "cost": {"seconds": 80.0},
}


def ours_of(path: str, unit: str = "%") -> Ours | None:
    return read_measured_value(METRICS, Metric("metric", path, unit, ""))


def test_values_are_read_with_their_intervals_or_computed_of_several() -> None:
    assert ours_of("scores.em") == Ours(50.0, 40.0, 62.0, 40)
    assert ours_of("figures.errors, *") == Ours(3.0, None, None, 40)
    share = ours_of("figures.errors, off-topic / figures.errors, *")
    assert share is not None
    assert share.mean == pytest.approx(100 / 3)
    assert ours_of("cost.seconds / questions", "s") == Ours(2.0, None, None, 40)
    assert ours_of("figures.errors, redundancy - figures.errors, off-topic", "errors") == Ours(1.0, None, None, 40)


def test_what_a_run_does_not_define_is_no_value() -> None:
    assert ours_of("scores.f1") is None
    assert ours_of("judge.accuracy") is None
    assert ours_of("figures.retries / figures.steps") is None
    assert read_measured_value(METRICS, Metric("metric", None, "%", "nothing corresponds to it")) is None


@pytest.mark.parametrize(
    ("published", "ours", "expected"),
    [
        (62.0, Ours(50, 40, 62, 100), "OK"),
        (72.0, Ours(50, 40, 62, 100), "close"),  # half-width 11, twice it 22
        (72.1, Ours(50, 40, 62, 100), "off"),
        (51.9, Ours(50, 49.9, 50.1, 9000), "close"),  # two points, however narrow the interval
        (52.1, Ours(50, 49.9, 50.1, 9000), "off"),
        (50.0, Ours(50, 50, 50, 29), "few"),
        (100.0, Ours(102, None, None, 30), "OK"),
        (100.0, Ours(90, None, None, 30), "close"),
        (100.0, Ours(89, None, None, 30), "off"),
    ],
)
def test_the_verdict_follows_the_rule(published: float, ours: Ours, expected: str) -> None:
    assert closeness(Value(published, approximate=False, spread=None), ours) == expected


def test_values_read_from_plots_are_marked() -> None:
    assert Value.of("~41.5") == Value(41.5, approximate=True, spread=None)
    assert Value.of(41.5, 0.3) == Value(41.5, approximate=False, spread=0.3)
    assert Value.of(None) is None


def test_totals_of_safe_table_8_are_compared_per_question() -> None:
    table = load_table("safe/table8")
    (cell,) = table.cells
    published = {m.name: value.number for m, value in zip(table.metrics, cell.values, strict=True) if value}
    assert published["Overall, computed"] * 3000 == pytest.approx(15_900_000)
    assert published["Generator, cached"] * 3000 == pytest.approx(32_900_000, abs=20)
    metrics = {"questions": 2, "cost": {"method": {"prompt_tokens": 100, "cached_tokens": 40}}}
    ours = {metric.name: read_measured_value(metrics, metric) for metric in table.metrics}
    assert ours["Overall, computed"] == Ours(30.0, None, None, 2)
    assert ours["Overall, savings"] == Ours(40.0, None, None, 2)
