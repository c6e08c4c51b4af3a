"""The report of a reproduction: its plots and its written forms."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from kgqa.report.plots import Plot, Point, Series, svg, ticks
from kgqa.report.reproduction import CellLine, Line, Order, Reproduction, write_reproduction
from kgqa.scoring.published_delta import Delta, Metric, Ours, Value

DELTA = Delta(5.0, -3.0, 13.0, "cannot tell")


def figure_of(**changes: Any) -> Reproduction:
    em = Metric("EM", "scores.em", "%", "")
    lines = [
        Line("Row <1>", "1", em, Value(40.0, approximate=False, spread=None), Ours(45.0, 40.0, 50.0, 50), DELTA, ""),
        Line("Row <1>", "2", em, None, Ours(47.0, 41.0, 52.0, 50), None, ""),
        Line("Row <1>", "3", em, Value(44.0, approximate=True, spread=0.5), None, None, "needs weights"),
    ]
    cells = [CellLine("Row <1>", line.column, "done", "", "kgqa run limit=3", "outputs/x") for line in lines]
    values: dict[str, Any] = {
        "id": "trace/figure4", "title": "A figure", "place": "Figure 4", "command": "kgqa reproduce trace/figure4",
        "axis": "L", "against": "", "columns": ("1", "2", "3"), "rows": ("Row <1>",), "lines": lines, "cells": cells,
        "answered_by": ("small@vllm",), "margin": 3.0,
        "differing": [("reader", "LLaMA-3", "model=x")], "cost": [("so far", "3 runs")],
    }  # fmt: skip
    return Reproduction(**{**values, **changes})


def test_a_figure_has_the_papers_points_hollow_beside_ours() -> None:
    (plot,) = figure_of().plots()
    assert (plot.title, plot.x, plot.y) == ("Figure 4, EM", "L", "EM")
    theirs, ours = plot.series
    assert [(point.x, point.y) for point in theirs.points] == [(1, 40.0), (3, 44.0)]
    assert [(point.x, point.y, point.low) for point in ours.points] == [(1, 45.0, 40.0), (2, 47.0, 41.0)]
    assert theirs.hollow
    assert not ours.hollow


def test_a_metric_can_be_the_x_axis() -> None:
    em, calls = Metric("EM", "scores.em", "%", ""), Metric("Calls", "calls", "calls", "")
    ours = {em: Ours(45.0, 40.0, 50.0, 50), calls: Ours(3.0, None, None, 50)}
    theirs = {em: Value(40.0, approximate=False, spread=None), calls: Value(2.0, approximate=False, spread=None)}
    lines = [Line("Row", "1", metric, theirs[metric], ours[metric], DELTA, "") for metric in (em, calls)]
    (plot,) = figure_of(against="Calls", rows=("Row",), lines=lines, columns=("1", "2")).plots()
    assert (plot.x, plot.y, [(p.x, p.y, p.label) for each in plot.series for p in each.points]) == (
        "Calls", "EM", [(2.0, 40.0, "1"), (3.0, 45.0, "1")],
    )  # fmt: skip
    assert figure_of(rows=("Row",), lines=lines, columns=("1",)).plots() == []


def test_tables_and_figures_without_a_point_have_no_plots() -> None:
    assert figure_of(place="Table 4").plots() == []
    assert figure_of(lines=[]).plots() == []


def test_a_plot_is_well_formed_and_its_points_lie_in_order() -> None:
    drawn = svg(Plot("a <b>", "x axis", "y axis", [Series("s & t", [Point(1, 5.0), Point(2, 7.0, 6.0, 9.0)], 0)]))
    root = ElementTree.fromstring(drawn)
    space = "{http://www.w3.org/2000/svg}"
    (line,) = root.iter(f"{space}polyline")
    (x1, y1), (x2, y2) = (map(float, pair.split(",")) for pair in line.attrib["points"].split())
    assert x1 < x2
    assert y1 > y2  # pixels count downwards
    upright = [text.text for text in root.iter(f"{space}text") if "transform" not in text.attrib]
    turned = [text.text for text in root.iter(f"{space}text") if "transform" in text.attrib]
    assert "s & t" in upright
    assert "x axis" in upright
    assert turned == ["y axis"]


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (33.3, 71.9), (-3.0, 4.0), (0.001, 0.0012), (1e6, 5e6)])
def test_ticks_enclose_the_values_with_few_round_ones(low: float, high: float) -> None:
    marks = ticks(low, high)
    assert marks[0] <= low
    assert marks[-1] >= high
    assert 3 <= len(marks) <= 8


def test_reports_are_written_in_every_form(tmp_path: Path) -> None:
    page = write_reproduction(figure_of(), tmp_path).read_text(encoding="utf-8")
    assert "Row &lt;1&gt;" in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")  # needs no network
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "| 1 | EM | 40.0 | 45.0 | 40.0 to 50.0 | +5.0 [−3.0, +13.0] | cannot tell |" in markdown
    assert "| 3 | EM | ~44.0 ± 0.5 | – |  |  | needs weights |" in markdown
    assert "| reader | LLaMA-3 | model=x |" in markdown
    latex = (tmp_path / "report.tex").read_text(encoding="utf-8")
    assert r"1 & EM & 40.0 & 45.0 & 40.0 to 50.0 & +5.0 [$-$3.0, +13.0] & cannot tell \\" in latex
    assert r"$\pm$ 0.5" in latex  # signs that LaTeX has in formulas alone
    assert (tmp_path / "plot1.svg").is_file()


def test_an_axis_of_equal_values_shows_no_negative_share() -> None:
    drawn = svg(Plot("EM", "K", "EM", [Series("ours", [Point(5, 0.0), Point(10, 0.0)], 0)]))
    space = "{http://www.w3.org/2000/svg}"
    texts = {text.text for text in ElementTree.fromstring(drawn).iter(f"{space}text")}
    assert {"0", "1"} < texts
    assert not [text for text in texts if text and text.startswith("-")]


def test_the_report_names_the_model_and_counts_orders(tmp_path: Path) -> None:
    write_reproduction(figure_of(orders=[Order("HotpotQA", "EM", 36, 4, 2, 30)]), tmp_path)
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "| L | metric | published | ours (small@vllm) |" in markdown
    assert "| HotpotQA | EM | 36 | 4 | 2 | 30 |" in markdown
    assert "within 3 points of 0" in markdown
    assert "ours (small@vllm)" in (tmp_path / "report.tex").read_text(encoding="utf-8")


def test_copied_values_are_marked(tmp_path: Path) -> None:
    write_reproduction(figure_of(second_hand="two notes"), tmp_path)
    assert "The published values are secondary, from two notes." in (tmp_path / "report.md").read_text("utf-8")


def test_failed_questions_are_named_beside_the_value(tmp_path: Path) -> None:
    figure = figure_of()
    ours = Ours(45.0, 40.0, 50.0, 50, failed=9, asked=200)
    page = write_reproduction(figure_of(lines=[replace(figure.lines[0], ours=ours)]), tmp_path).read_text("utf-8")
    for text in (page, (tmp_path / "report.md").read_text("utf-8"), (tmp_path / "report.tex").read_text("utf-8")):
        assert "45.0 (answered 191 of 200)" in text
    assert "which count as wrong" in page
    assert "(answered" not in write_reproduction(figure, tmp_path).read_text("utf-8")
