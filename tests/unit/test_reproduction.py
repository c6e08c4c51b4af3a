"""Published values beside ours: whether they agree, and the report of a reproduction with its plots."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from kgqa.artifacts.run import MADE_UP
from kgqa.report.page import svg
from kgqa.report.plots import Plot, Point, Series, log_ticks, ticks
from kgqa.report.reproduction import CellLine, Line, Order, Reproduction, write_reproduction
from kgqa.reproduce import comparison
from kgqa.reproduce.cells import count_states
from kgqa.reproduce.tables import load_table
from kgqa.scoring.published_delta import (
    Delta,
    Ours,
    PublishedMetric,
    Value,
    compare_metric,
    compare_with_published,
    read_measured_value,
    wilson_interval,
)

DELTA = Delta(5.0, -3.0, 13.0, "cannot tell", predicted=True)
EM = PublishedMetric("EM", "scores.em", "%", "")


def figure_of(**changes: Any) -> Reproduction:
    lines = [
        Line(
            "Row <1>",
            "1",
            EM,
            Value(40.0, approximate=False, spread=None),
            Ours(45.0, 40.0, 50.0, 50),
            DELTA,
            "",
        ),
        Line("Row <1>", "2", EM, None, Ours(47.0, 41.0, 52.0, 50), None, ""),
        Line(
            "Row <1>",
            "3",
            EM,
            Value(44.0, approximate=True, spread=0.5),
            None,
            None,
            "needs weights",
        ),
    ]
    cells = [
        CellLine("Row <1>", line.column, "done", "", "kgqa run limit=3", "outputs/x")
        for line in lines
    ]
    values: dict[str, Any] = {
        "id": "trace/figure4", "title": "A figure", "place": "Figure 4", "command": "kgqa reproduce trace/figure4",
        "axis": "L", "against": "", "columns": ("1", "2", "3"), "rows": ("Row <1>",), "lines": lines, "cells": cells,
        "answered_by": ("small@vllm",), "margin": 3.0,
        "differing": [("reader", "LLaMA-3", "model=x")], "cost": [("so far", "3 runs")],
    }  # fmt: skip
    return Reproduction(**{**values, **changes})


def test_figure_has_hollow_points_of_the_paper() -> None:
    (plot,) = figure_of().plots()
    assert (plot.title, plot.x, plot.y) == ("Figure 4, EM", "L", "EM")
    hollow, full = plot.series
    assert [(point.x, point.y) for point in hollow.points] == [(1, 40.0), (3, 44.0)]
    assert [(point.x, point.y, point.low) for point in full.points] == [
        (1, 45.0, 40.0),
        (2, 47.0, 41.0),
    ]
    assert (hollow.hollow, full.hollow) == (True, False)
    em, calls = EM, PublishedMetric("Calls", "calls", "calls", "")
    ours = {em: Ours(45.0, 40.0, 50.0, 50), calls: Ours(3.0, None, None, 50)}
    theirs = {
        em: Value(40.0, approximate=False, spread=None),
        calls: Value(2.0, approximate=False, spread=None),
    }
    lines = [
        Line("Row", "1", metric, theirs[metric], ours[metric], DELTA, "") for metric in (em, calls)
    ]
    (plot,) = figure_of(against="Calls", rows=("Row",), lines=lines, columns=("1", "2")).plots()
    assert (plot.x, plot.y, [(p.x, p.y, p.label) for each in plot.series for p in each.points]) == (
        "Calls", "EM", [(2.0, 40.0, "1"), (3.0, 45.0, "1")],
    )  # fmt: skip
    assert figure_of(rows=("Row",), lines=lines, columns=("1",)).plots() == []
    assert figure_of(place="Table 4").plots() == figure_of(lines=[]).plots() == []


SVG = "{http://www.w3.org/2000/svg}"


def test_plot_is_well_formed_with_points_in_order() -> None:
    series = [Series("s & t", [Point(1, 5.0), Point(2, 7.0, 6.0, 9.0)], 0), Series("u", [], 1)]
    picture = svg(Plot("a <b>", "x axis", "y axis", series))
    root = ElementTree.fromstring(picture)
    (line,) = root.iter(f"{SVG}polyline")
    (x1, y1), (x2, y2) = (map(float, pair.split(",")) for pair in line.attrib["points"].split())
    assert (x1 < x2, y1 > y2) == (True, True)  # pixels count downwards
    upright = [text.text for text in root.iter(f"{SVG}text") if "transform" not in text.attrib]
    turned = [text.text for text in root.iter(f"{SVG}text") if "transform" in text.attrib]
    assert ({"s & t", "x axis"} <= {*upright}, turned) == (True, ["y axis"])


def test_plot_of_equal_values_has_an_axis() -> None:
    picture = svg(Plot("EM", "K", "EM", [Series("ours", [Point(5, 0.0), Point(10, 0.0)], 0)]))
    texts = {text.text or "" for text in ElementTree.fromstring(picture).iter(f"{SVG}text")}
    assert {"0", "1"} < {text for text in texts if not text.startswith("-")} == texts


def test_axis_of_costs_is_logarithmic() -> None:
    points = [Point(30, 10), Point(300, 20), Point(3000, 30)]
    first, second, third = (
        float(x) for x in re.findall(r'cx="([\d.]+)"', draw(points, x_is_cost=True))[:3]
    )
    assert abs((second - first) - (third - second)) < 0.2
    first, second, third = (
        float(x) for x in re.findall(r'cx="([\d.]+)"', draw(points, x_is_cost=False))[:3]
    )
    assert third - second > 5 * (second - first)


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 1.0), (33.3, 71.9), (-3.0, 4.0), (0.001, 0.0012), (1e6, 5e6)]
)
def test_ticks_include_the_values(low: float, high: float) -> None:
    marks = ticks(low, high)
    assert marks[0] <= low < high <= marks[-1]
    assert 3 <= len(marks) <= 8


def test_ticks_of_costs_are_logarithmic() -> None:
    assert (log_ticks(30, 300), log_ticks(0.02, 0.05)) == ([20, 50, 100, 200, 500], [0.02, 0.05])


def test_reports_are_written_in_every_form(tmp_path: Path) -> None:
    ours = Ours(45.0, 40.0, 50.0, 50, failed=9, asked=200)
    figure = figure_of(orders=[Order("HotpotQA", "EM", 36, 4, 2, 30)], second_hand="two notes")
    figure = replace(figure, lines=[replace(figure.lines[0], ours=ours), *figure.lines[1:]])
    page = write_reproduction(figure, tmp_path).read_text(encoding="utf-8")
    parts = ["Row &lt;1&gt;", "which count as wrong", 'aria-label="Figure 4, EM"']
    assert [part for part in parts if part not in page] == []
    assert "http" not in page.replace("http-equiv", "").replace(
        "http://www.w3.org/2000/svg", ""
    )  # needs no network
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    rows = [
        "The published values are secondary, from two notes.",
        "| L | metric | published | ours (small@vllm) |",
        "| 1 | EM | 40.0 | 45.0 (answered 191 of 200) | 40.0 to 50.0 |",
        "| +5.0 [−3.0, +13.0] | cannot tell | 13.0 | inside |",
        "| 2 | EM | – | 47.0 | 41.0 to 52.0 |", "| 3 | EM | ~44.0 ± 0.5 | – |  |  | needs weights |",
        "| reader | LLaMA-3 | model=x |", "| HotpotQA | EM | 36 | 4 | 2 | 30 |", "within 3 points of 0",
    ]  # fmt: skip
    assert [row for row in rows if row not in markdown] == []
    latex = (tmp_path / "report.tex").read_text(encoding="utf-8")
    # the columns of a paper: the report has the others
    assert r"L & metric & published & ours & 95 \% interval & verdict \\" in latex
    assert r"1 & EM & 40.0 & 45.0 (answered 191 of 200) & 40.0 to 50.0 & cannot tell \\" in latex
    assert r"-- &  & not run \\" in latex
    # signs that LaTeX has in formulas alone
    assert r"$\pm$ 0.5" in latex


def draw(points: list[Point], *, x_is_cost: bool) -> str:
    return svg(
        Plot("t", "tokens", "EM", [Series("runs", points, 0, line=False)], x_is_cost=x_is_cost)
    )


@pytest.mark.parametrize(
    ("questions", "is_named"),
    [
        pytest.param(500, True, id="500"),
        pytest.param(7405, False, id="7405"),
        pytest.param(None, False, id="unknown"),
    ],
)
def test_few_paper_questions_are_reported(questions: int | None, is_named: bool) -> None:
    few = Value(40.0, approximate=False, spread=None, questions=questions)
    figure = figure_of(lines=[replace(figure_of().lines[0], published=few)])
    text = "so few questions that their own sampling error is up to 4.3 points"
    assert (text in " ".join(figure.verdicts().text).replace("\n", " ")) == is_named


def test_difference_near_zero_has_no_sign() -> None:
    delta = replace(DELTA, difference=-0.04, low=-0.06, high=0.04)
    figure = figure_of(lines=[replace(figure_of().lines[0], delta=delta)])
    cells = [cell for each in figure.sections() for row in each.rows for cell in row]
    assert "0.0 [−0.1, 0.0]" in cells


def test_tokens_have_no_decimals() -> None:
    metric, delta = (
        PublishedMetric("Tokens", "context_tokens", "tokens", ""),
        Delta(-101.84, -223.8, 31.6, "agrees"),
    )
    value, ours = Value(2551, approximate=False, spread=None), Ours(2449.16, 2329.7, 2580.7, 80)
    figure = figure_of(lines=[Line("Row <1>", "1", metric, value, ours, delta, "")])
    (section,) = figure.comparison()
    assert section.rows[0][2:6] == ("2,551", "2,449", "2,330 to 2,581", "−102 [−224, +32]")


METRICS = {
    "questions": 40,
    "scores": {
        "em": {"mean": 50.0, "low": 40.0, "high": 62.0, "n": 40},
        "f1": {"mean": None, "n": 0},
    },
    "figures": {"errors, off-topic": 1.0, "errors, redundancy": 2.0, "errors at step 1": 3.0},
    "cost": {"seconds": 80.0},
}


def ours_of(path: str, unit: str = "%") -> Ours | None:
    return read_measured_value(METRICS, PublishedMetric("metric", path, unit, ""))


def test_values_have_intervals_or_combine_several() -> None:
    assert ours_of("scores.em") == Ours(50.0, 40.0, 62.0, 40)
    assert ours_of("figures.errors, *") == Ours(3.0, None, None, 40)
    share = ours_of("figures.errors, off-topic / figures.errors, *")
    assert share is not None
    assert share.mean == pytest.approx(100 / 3)
    assert ours_of("cost.seconds / questions", "s") == Ours(2.0, None, None, 40)
    assert ours_of("figures.errors, redundancy - figures.errors, off-topic", "errors") == Ours(
        1.0, None, None, 40
    )
    assert [
        ours_of(name) for name in ("scores.f1", "judge.accuracy", "figures.retries / figures.steps")
    ] == [None] * 3
    assert (
        read_measured_value(
            METRICS, PublishedMetric("metric", None, "%", "nothing corresponds to it")
        )
        is None
    )


def of(number: float, questions: int | None = 7405, spread: float | None = None) -> Value:
    return Value(number, approximate=False, spread=spread, questions=questions)


@pytest.mark.parametrize(
    ("published", "ours", "expected"),
    [
        pytest.param(of(50.5), Ours(50, 49, 51, 7405), "agrees", id="within 3 points"),
        # the interval excludes 0 and reaches beyond 3 points
        pytest.param(
            of(52.5), Ours(50, 49, 51, 7405), "differs", id="excludes 0 and exceeds 3 points"
        ),
        pytest.param(of(60.0), Ours(50, 49, 51, 7405), "differs", id="10 points apart"),
        # the interval ends at 2.9 and at 3.5 points
        pytest.param(of(48.6), Ours(50, 49, 51, 7405), "agrees", id="just within 3 points"),
        pytest.param(of(48.0), Ours(50, 49, 51, 7405), "differs", id="just beyond 3 points"),
        # equal means, but an interval of 15 points
        pytest.param(of(50.0), Ours(50, 35, 65, 40), "cannot tell", id="interval of 15 points"),
        pytest.param(
            of(50.0, 40), Ours(50, 49, 51, 7405), "cannot tell", id="40 questions of the paper"
        ),
        # with 7,405 questions it would differ
        pytest.param(
            of(56.0, 200), Ours(50, 49, 51, 7405), "cannot tell", id="200 questions of the paper"
        ),
        pytest.param(of(56.0), Ours(50, 49, 51, 7405), "differs", id="6 points apart"),
        # its runs differ by 4 points
        pytest.param(
            of(56.0, 7405, 4.0),
            Ours(50, 49, 51, 7405),
            "cannot tell",
            id="runs of the paper differ",
        ),
        pytest.param(of(50.0), Ours(50, 50, 50, 29), "cannot tell", id="29 questions"),
        pytest.param(of(50.0), Ours(50, 50, 50, 30), "agrees", id="30 questions"),
        # no answer of 40 is right
        pytest.param(of(10.0), Ours(0, 0, 8.76, 40), "differs", id="no answer of 40 is right"),
        pytest.param(of(5.0), Ours(0, 0, 8.76, 40), "cannot tell", id="5 points of 40 questions"),
        pytest.param(of(52.0), Ours(50, None, None, 7405), "cannot tell", id="no interval"),
    ],
)
def test_values_agree_if_interval_is_within_margin(
    published: Value, ours: Ours, expected: str
) -> None:
    assert compare_with_published(published, ours, "%").verdict == expected


def test_margin_can_be_set() -> None:
    assert compare_with_published(of(50.0), Ours(53, 52, 54, 7405), "%", 3).verdict == "differs"
    assert compare_with_published(of(50.0), Ours(53, 52, 54, 7405), "%", 6).verdict == "agrees"


def test_value_of_another_quantity_is_not_compared() -> None:
    # TRACE's tables count 57 tokens without documents, so not those of the context
    [tokens, *_] = load_table("trace/table1").metrics
    assert tokens.name == "Tokens"
    assert compare_metric(tokens, of(57.0), Ours(0, 0, 0, 80)).verdict == "not compared"
    line = Line("w/o documents", "1", tokens, of(57.0), Ours(0, 0, 0, 80), DELTA, "")
    rules = figure_of(lines=[line]).rules_section()
    assert ("Tokens, not compared", tokens.why) in rules.rows


def test_value_without_a_model_has_no_verdict() -> None:
    ours = Ours(0, 0, 8.8, 40, is_simulated=True)
    delta = compare_metric(EM, of(60.0), ours)
    assert (delta.verdict, delta.agrees_within, delta.predicted) == ("no model", None, None)
    line = Line("w/o documents", "1", EM, of(60.0), ours, delta, "")
    assert ("no model", f"{MADE_UP}. They are not compared.") in figure_of(
        lines=[line]
    ).rules_section().rows


@pytest.mark.parametrize("mean", [6.0, 380.0])
def test_seconds_are_not_compared(mean: float) -> None:
    # they depend on the hardware
    assert (
        compare_with_published(of(6.0, 500), Ours(mean, mean - 1, mean + 1, 500), "s").verdict
        == "not compared"
    )


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        pytest.param(Ours(103, 101, 105, 500), "agrees", id="within 10 %"),
        pytest.param(Ours(120, 118, 122, 500), "differs", id="20 % apart"),
        # the interval ends at 9.8 and at 10.4 %
        pytest.param(Ours(108.4, 107.4, 109.4, 500), "agrees", id="just within 10 %"),
        pytest.param(Ours(109, 108, 110, 500), "differs", id="just beyond 10 %"),
        pytest.param(Ours(103, 60, 140, 500), "cannot tell", id="wide interval"),
        pytest.param(Ours(103, None, None, 500), "cannot tell", id="no interval"),
        # a count that is equal
        pytest.param(Ours(100, None, None, 500), "agrees", id="equal count"),
    ],
)
def test_tokens_agree_within_a_tenth(ours: Ours, expected: str) -> None:
    assert compare_with_published(of(100.0, 500), ours, "tokens").verdict == expected


@pytest.mark.parametrize(
    ("published", "ours", "within", "predicted"),
    [
        (of(50.0, 500), Ours(48, 44, 52, 500), 7.9, True),
        (of(50.0, 500), Ours(43, 39, 47, 500), 12.9, False),
        (of(50.0, 500), Ours(43, 30, 57, 50), 20.7, True),  # few questions: a wide prediction
        (of(50.0, 500, 2.0), Ours(43, 39, 47, 500), 14.1, True),  # its runs differ
        (of(0.0, 500), Ours(0, 0, 0.8, 500), 0.8, True),
    ],
)
def test_smallest_margin_and_prediction(
    published: Value, ours: Ours, within: float, predicted: bool
) -> None:
    delta = compare_with_published(published, ours, "%")
    assert delta.agrees_within == pytest.approx(within, abs=0.1)
    assert delta.predicted == predicted
    assert compare_with_published(published, ours, "%", within + 0.1).verdict == "agrees"


@pytest.mark.parametrize(
    ("ours", "predicted"),
    [
        # 7.8 % of each value, together 11.0
        pytest.param(Ours(109.5, 101, 118, 500), True, id="9.5 above"),
        pytest.param(Ours(111.5, 102.8, 120.2, 500), False, id="11.5 above"),
        pytest.param(Ours(90, 80, 92, 500), True, id="wide interval below"),
        pytest.param(Ours(90, 88, 110, 500), False, id="wide interval above"),
    ],
)
def test_tokens_are_predicted_by_our_errors(ours: Ours, predicted: bool) -> None:
    delta = compare_with_published(of(100.0, 500), ours, "tokens")
    assert delta.predicted is predicted


@pytest.mark.parametrize(
    ("published", "right", "questions", "predicted"),
    [
        # 0.9615 ** 40 = 0.21, ** 60 = 0.095, ** 120 = 0.009
        pytest.param(3.85, 0, 40, True, id="none of 40"),
        pytest.param(3.85, 0, 60, True, id="none of 60"),
        pytest.param(3.85, 0, 120, False, id="none of 120"),
        pytest.param(96.15, 40, 40, True, id="all of 40"),
        pytest.param(96.15, 120, 120, False, id="all of 120"),
        pytest.param(0.0, 0, 40, True, id="zero as published"),
        pytest.param(0.0, 5, 40, False, id="zero was published"),
        pytest.param(100.0, 40, 40, True, id="all as published"),
        # a share of a question more than 0 is not below 0
        pytest.param(8.32, 0.4, 40, True, id="F1 near zero"),
    ],
)
def test_prediction_near_the_ends_is_binomial(
    published: float, right: float, questions: int, predicted: bool
) -> None:
    ours = Ours(100 * right / questions, 0, 100, questions)
    assert compare_with_published(of(published, 2417), ours, "%").predicted is predicted


def _coverage(published: Value, chances: np.ndarray, step: float, questions: int) -> float:
    """Return the chance that a second sample is predicted. chances: of each sum of its scores, in steps."""
    means = (100 * step * place / questions for place in range(len(chances)))
    return sum(
        float(chance)
        for mean, chance in zip(means, chances, strict=True)
        if compare_with_published(published, Ours(mean, 0, 100, questions), "%").predicted
    )


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.001, 0.0385, 0.2, 0.5, 0.99])
@pytest.mark.parametrize(("asked", "questions"), [(40, 40), (30, 80), (200, 40)])
def test_prediction_covers_second_samples(share: float, asked: int, questions: int) -> None:
    """Over all published samples and all second samples of right and wrong answers, at least 95 % are inside."""
    from scipy.stats import binom  # here, because it takes a second to import

    first = binom.pmf(np.arange(asked + 1), asked, share)
    second = binom.pmf(np.arange(questions + 1), questions, share)
    covered = sum(
        chance * _coverage(of(100 * right / asked, asked), second, 1, questions)
        for right, chance in enumerate(first)
        if chance > 1e-6
    )
    assert covered >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("mean", [0.01, 0.0832, 0.3])
@pytest.mark.parametrize("questions", [40, 60])
def test_prediction_of_f1_covers_second_samples(mean: float, questions: int) -> None:
    # of 0, 1/4, 1/2, 3/4 and 1
    scores = np.array([1 - mean / 0.8, *(mean / 0.8 * np.array([0.1, 0.2, 0.1, 0.6]))])
    mean = float(scores @ np.arange(5)) / 4
    sums = np.array([1.0])
    for _ in range(questions):
        sums = np.convolve(sums, scores)
    assert _coverage(of(100 * mean, 100_000), sums, 0.25, questions) >= 0.95


def test_only_published_values_have_a_verdict() -> None:
    """Of three lines, one has both values, one has no published one, and one was not run."""
    assert figure_of().verdicts().values == {"cannot tell": 1, "not run": 1}


def test_values_without_a_published_one_are_counted() -> None:
    lines = [replace(line, published=None, delta=None) for line in figure_of().lines]
    verdicts = figure_of(lines=lines).verdicts()
    assert verdicts.values == {"no value in the text": 3}


def test_report_counts_differences_by_chance() -> None:
    figure = figure_of()
    line = figure.lines[0]
    assert line.ours is not None
    lines = [replace(line, ours=replace(line.ours, questions=200), delta=DELTA)] * 40
    text = " ".join(figure_of(lines=lines).verdicts().text)
    assert "Of 40 compared values, up to 2.0 would differ by chance. 0 differ here." in text


def test_interval_of_a_share_is_wilsons() -> None:
    assert wilson_interval(0, 40) == pytest.approx((0.0, 8.76), abs=0.01)
    assert wilson_interval(50, 100) == pytest.approx((40.38, 59.62), abs=0.01)
    assert Value.of("~41.5") == Value(41.5, approximate=True, spread=None)
    assert Value.of(41.5, 0.3) == Value(41.5, approximate=False, spread=0.3)
    assert Value.of(None) is None


def test_safe_table_8_is_compared_per_question() -> None:
    table = load_table("safe/table8")
    (cell,) = (cell for cell in table.cells if cell.column == table.average)
    published = {
        m.name: value.number for m, value in zip(table.metrics, cell.values, strict=True) if value
    }
    assert published["Overall, computed"] * 3000 == pytest.approx(15_900_000)
    metrics = {"questions": 2, "cost": {"method": {"prompt_tokens": 100, "cached_tokens": 40}}}
    ours = {metric.name: read_measured_value(metrics, metric) for metric in table.metrics}
    assert ours["Overall, computed"] == Ours(30.0, None, None, 2)
    assert ours["Overall, savings"] == Ours(40.0, None, None, 2)
    counts = {
        (c.column, value.questions)
        for c in load_table("trace/table5").cells
        for value in c.values
        if value
    }
    assert {("HotPotQA Dev.", 500), ("HotPotQA Test", 7405), ("MuSiQue Test", 2417)} <= counts


def test_cell_without_a_run_is_listed_with_a_reason() -> None:
    cell = CellLine("Row", "2", "failed", "needs weights", "", "")
    sections = {section.title: section for section in figure_of(cells=[cell]).sections()}
    assert list(sections["Cells that were not run"].rows) == [
        ("Row · 2", "failed", "needs weights")
    ]


def test_title_of_the_page_is_the_heading(tmp_path: Path) -> None:
    page = write_reproduction(figure_of(), tmp_path).read_text(encoding="utf-8")
    assert "<title>trace/figure4: A figure" in page


def test_planned_cells_are_counted_without_means() -> None:
    states = ("needs weights", "run", "mean", "run", "needs weights", "model retired")
    cells: Any = [SimpleNamespace(state=state) for state in states]
    assert count_states(cells) == (5, "2 run, 1 model retired, 2 need weights")


@pytest.mark.parametrize(
    ("lows", "expected"),
    [
        pytest.param((40.0, 44.0), (42.0, 62.0), id="all have an interval"),
        pytest.param((40.0, None), (None, None), id="one has none"),
    ],
)
def test_mean_of_runs_has_the_mean_interval(
    lows: Sequence[float | None], expected: tuple[float | None, float | None]
) -> None:
    """A mean of several runs without an interval of each has none."""
    runs: list[Any] = []
    for low in lows:
        score = {"mean": 50.0, "n": 40, "low": low, "high": 62.0 if low else None}
        figures = {**METRICS, "scores": {"em": score}}
        runs.append(SimpleNamespace(figures=figures, metrics=None, run=None, finished=None))
    ours = comparison._measure(runs, PublishedMetric("EM", "scores.em", "%", ""))
    assert ours is not None
    assert (ours.mean, ours.low, ours.high) == (50.0, *expected)
