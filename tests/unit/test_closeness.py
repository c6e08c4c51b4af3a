"""Whether published values and ours agree."""

from __future__ import annotations

import pytest

from kgqa.reproduce.tables import load_table
from kgqa.scoring.published_delta import (
    Metric,
    Ours,
    Value,
    compare_with_published,
    read_measured_value,
    wilson_interval,
)

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
    for undefined in ("scores.f1", "judge.accuracy", "figures.retries / figures.steps"):
        assert ours_of(undefined) is None
    assert read_measured_value(METRICS, Metric("metric", None, "%", "nothing corresponds to it")) is None


def of(number: float, questions: int | None = 7405, spread: float | None = None) -> Value:
    return Value(number, approximate=False, spread=spread, questions=questions)


def test_values_agree_only_if_the_whole_interval_is_within_the_margin() -> None:
    for published, ours, expected in [
        (of(50.5), Ours(50, 49, 51, 7405), "agrees"),
        (of(52.5), Ours(50, 49, 51, 7405), "differs"),  # the interval excludes 0 and reaches beyond 3 points
        (of(60.0), Ours(50, 49, 51, 7405), "differs"),
        (of(50.0), Ours(50, 35, 65, 40), "cannot tell"),  # equal means, but an interval of 15 points
        (of(50.0, 40), Ours(50, 49, 51, 7405), "cannot tell"),  # the paper's own error is as large
        (of(56.0, 200), Ours(50, 49, 51, 7405), "cannot tell"),  # with 7,405 questions it would differ
        (of(56.0), Ours(50, 49, 51, 7405), "differs"),
        (of(56.0, 7405, 4.0), Ours(50, 49, 51, 7405), "cannot tell"),  # its runs differ by 4 points
        (of(50.0), Ours(50, 50, 50, 29), "cannot tell"),
        (of(10.0), Ours(0, 0, 0, 40), "differs"),  # no answer of 40 is right: below 9 %
        (of(5.0), Ours(0, 0, 0, 40), "cannot tell"),
        (of(52.0), Ours(50, None, None, 7405), "cannot tell"),
    ]:
        assert compare_with_published(published, ours, "%").verdict == expected, (published, ours)
    assert compare_with_published(of(50.0), Ours(53, 52, 54, 7405), "%", 3).verdict == "differs"
    assert compare_with_published(of(50.0), Ours(53, 52, 54, 7405), "%", 6).verdict == "agrees"
    for ours, expected in [
        (Ours(103, 101, 105, 500), "agrees"),
        (Ours(120, 118, 122, 500), "differs"),
        (Ours(103, 60, 140, 500), "cannot tell"),
        (Ours(103, None, None, 500), "cannot tell"),
        (Ours(100, None, None, 500), "agrees"),  # a count that is equal
    ]:
        assert compare_with_published(of(100.0, 500), ours, "tokens").verdict == expected
    for mean in (6.0, 380.0):  # they depend on the hardware
        assert compare_with_published(of(6.0, 500), Ours(mean, mean - 1, mean + 1, 500), "s").verdict == "not compared"


def test_the_interval_of_a_share_is_wilsons_and_values_read_from_plots_are_marked() -> None:
    assert wilson_interval(0, 40) == pytest.approx((0.0, 8.76), abs=0.01)
    assert wilson_interval(50, 100) == pytest.approx((40.38, 59.62), abs=0.01)
    assert Value.of("~41.5") == Value(41.5, approximate=True, spread=None)
    assert Value.of(41.5, 0.3) == Value(41.5, approximate=False, spread=0.3)
    assert Value.of(None) is None


def test_totals_of_safe_table_8_are_compared_per_question() -> None:
    table = load_table("safe/table8")
    (cell,) = (cell for cell in table.cells if cell.column == table.average)
    published = {m.name: value.number for m, value in zip(table.metrics, cell.values, strict=True) if value}
    assert published["Overall, computed"] * 3000 == pytest.approx(15_900_000)
    metrics = {"questions": 2, "cost": {"method": {"prompt_tokens": 100, "cached_tokens": 40}}}
    ours = {metric.name: read_measured_value(metrics, metric) for metric in table.metrics}
    assert ours["Overall, computed"] == Ours(30.0, None, None, 2)
    assert ours["Overall, savings"] == Ours(40.0, None, None, 2)
    counts = {(c.column, value.questions) for c in load_table("trace/table5").cells for value in c.values if value}
    assert {("HotPotQA Dev.", 500), ("HotPotQA Test", 7405), ("MuSiQue Test", 2417)} <= counts
