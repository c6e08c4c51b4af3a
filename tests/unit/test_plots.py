"""Plots as SVG: axes and labels."""

from __future__ import annotations

import re

from kgqa.report.plots import Plot, Point, Series, log_ticks, svg


def draw(points: list[Point], *, x_is_cost: bool) -> str:
    return svg(Plot("t", "tokens", "EM", [Series("runs", points, 0, line=False)], x_is_cost=x_is_cost))


def test_costs_of_different_sizes_are_on_a_logarithmic_axis() -> None:
    points = [Point(30, 10), Point(300, 20), Point(3000, 30)]
    first, second, third = (float(x) for x in re.findall(r'cx="([\d.]+)"', draw(points, x_is_cost=True))[:3])
    assert abs((second - first) - (third - second)) < 0.2
    first, second, third = (float(x) for x in re.findall(r'cx="([\d.]+)"', draw(points, x_is_cost=False))[:3])
    assert third - second > 5 * (second - first)


def test_log_ticks_surround_the_values() -> None:
    assert log_ticks(30, 300) == [20, 50, 100, 200, 500]
    assert log_ticks(0.02, 0.05) == [0.02, 0.05]


def test_a_label_covers_no_other_label_and_no_point() -> None:
    points = [
        Point(100, 10, label="a long name"),
        Point(104, 10, label="another name"),
        Point(108, 10.2, label="third"),
    ]
    found = re.findall(
        r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="(start|end)">([a-z ]+)<', draw(points, x_is_cost=True)
    )
    boxes = []
    for x, y, anchor, label in found:
        start = float(x) - (6 * len(label) if anchor == "end" else 0)
        boxes.append((start, float(y) - 9, start + 6 * len(label), float(y)))
    assert sorted(label for *_, label in found) == sorted(point.label for point in points)
    assert not any(
        a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3] for n, a in enumerate(boxes) for b in boxes[:n]
    )
