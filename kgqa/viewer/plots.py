"""The plot of runs: one figure or setting against another, drawn as in reports."""

from __future__ import annotations

from collections.abc import Sequence

from kgqa.report.plots import Plot, Point, Series, svg
from kgqa.viewer.folder import Row
from kgqa.viewer.table import sort_key


def draw(rows: Sequence[Row], x: str, y: str, colour: str) -> str:
    """Return the plot as SVG: a point per run with the interval of `y`, a colour per value of `colour`.

    Runs without a number for `y`, or without a value for `x`, are left out.
    """
    shown = [row for row in rows if isinstance(row.value(y), int | float) and row.value(x) is not None]
    values = sorted({row.value(x) for row in shown}, key=sort_key)
    places = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
    named = any(isinstance(value, str) for value in values)
    groups: dict[str, list[Point]] = {}
    for row in sorted(shown, key=lambda row: sort_key(row.value(x))):
        value, height, figure = row.value(x), row.value(y), row.figures.get(y)
        at = float(values.index(value)) if named or not isinstance(value, int | float) else value
        assert isinstance(height, int | float)
        low, high = (figure.low, figure.high) if figure else (None, None)
        groups.setdefault(str(row.value(colour)), []).append(Point(at, height, low, high, row.name))
    series = [Series(name, points, number, line=False) for number, (name, points) in enumerate(groups.items())]
    return svg(Plot(f"{y} against {x}", x, y, series, places if named else ()))
