"""Columns, filter and order of the table of runs, and the plot of their figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from kgqa.report.columns import columns, name_by_settings
from kgqa.report.plots import Bar, BarPlot, Plot, Point, Series, bars_svg, svg
from kgqa.viewer.folder import Row

FIELDS = ("dataset", "method", "model", "status", "questions", "written")
_IN_COLUMNS = ("dataset", "model", "engine")  # settings that other columns show, or that change no answer
_CHANGES = 3  # settings in a title
COSTS = ("USD / question", "tokens / question")
Value = float | str | None


def columns_of(rows: Sequence[Row]) -> list[str]:
    """Return the columns that are always shown: fields, and the figures that some row has."""
    figures = (column.label for column in columns() if any(column.label in row.figures for row in rows))
    return ["status", "dataset", "model", *figures, "questions", "written"]


def titles_of(rows: Sequence[Row]) -> dict[str, str]:
    """Return a name by key that says what differs: the method and the settings that differ on this dataset."""
    titles = {}
    for row in rows:
        alike = [each for each in rows if (each.method, each.dataset) == (row.method, row.dataset)]
        keys = [key for key in differing_settings(alike) if not key.startswith(_IN_COLUMNS) and key in row.settings]
        keys = [
            key for key in keys if key.partition(".")[0] not in keys or "." not in key
        ]  # of a component that differs
        name = name_by_settings({"method": row.method} | {key: row.settings[key] for key in keys[:_CHANGES]})
        titles[row.key] = (
            f"sweep {row.name}" if row.kind == "sweep" else f"{name}{' · …' if len(keys) > _CHANGES else ''}"
        )
    return titles


def status_mark(row: Row) -> tuple[str, str]:
    """Return the text and the class of a row's status."""
    if row.trouble:
        return "! damaged", "wrong"
    if failed := row.figures.get("failed questions"):
        return f"! {failed.value:,.0f} failed", "wrong"
    sign, kind = {"done": ("✓", "right"), "running": ("●", "working")}.get(row.status, ("○", "hint"))
    return f"{sign} {row.cells or row.status}", kind


def differing_settings(rows: Iterable[Row]) -> list[str]:
    """Return the settings that have several values in these rows."""
    values: dict[str, set[str]] = {}
    for row in rows:
        for key, value in row.settings.items():
            values.setdefault(key, set()).add(value)
    return [key for key, seen in values.items() if len(seen) > 1 and key not in FIELDS]


def cell_text(row: Row, column: str) -> str:
    if column == "written":
        return f"{datetime.fromtimestamp(row.written):%Y-%m-%d %H:%M}"
    if column in row.figures:
        return str(row.figures[column])
    value = row.value(column)
    text = "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
    return text if column in FIELDS else row.settings.get(column) or text


def sort_rows(rows: Iterable[Row], column: str) -> list[Row]:
    """Sort by a column: numbers by size, texts by the alphabet, missing values last; `-column` sorts descending."""
    name = column.removeprefix("-")
    known = [row for row in rows if row.value(name) is not None]
    missing = [row for row in rows if row.value(name) is None]
    return [*sorted(known, key=lambda row: sort_key(row.value(name)), reverse=column.startswith("-")), *missing]


def sort_key(value: Value) -> tuple[bool, float, str]:
    return (True, 0, value.lower()) if isinstance(value, str) else (False, value or 0, "")


def has_words(row: Row, text: str) -> bool:
    """Return whether a row has all words of a filter, such as `trace` or `method=trace`."""
    pairs = {f"{key}={value}".lower() for key, value in row.settings.items()}
    names = f"{row.kind} {row.key} {row.status}".lower()
    return all(word in pairs or word in names for word in text.lower().split())


def draw_plot(rows: Sequence[Row], x: str, y: str, colour: str) -> str:
    """Return the plot as SVG: a point per run with the interval of `y`, a colour per value of `colour`.

    Runs without a number for `y`, or without a value for `x`, are left out.
    """
    shown = [row for row in rows if isinstance(row.value(y), int | float) and row.value(x) is not None]
    titles = titles_of(shown)
    values = sorted({row.value(x) for row in shown}, key=sort_key)
    names = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
    named = any(isinstance(value, str) for value in values)
    groups: dict[str, list[Point]] = {}
    for row in sorted(shown, key=lambda row: sort_key(row.value(x))):
        value, height, figure = row.value(x), row.value(y), row.figures.get(y)
        at = float(values.index(value)) if named or not isinstance(value, int | float) else value
        assert isinstance(height, int | float)
        low, high = (figure.low, figure.high) if figure else (None, None)
        groups.setdefault(str(row.value(colour)), []).append(Point(at, height, low, high, titles[row.key]))
    series = [Series(name, points, number, line=False) for number, (name, points) in enumerate(sorted(groups.items()))]
    return svg(Plot(f"{y} against {x}", x, y, series, names if named else (), x_is_cost=x in COSTS))


def draw_bars(rows: Sequence[Row], y: str) -> str:
    """Return a figure of all runs as bars with intervals, by dataset and named by what differs; "" without one."""
    titles = titles_of(rows)
    bars = [
        Bar(titles[row.key], figure.value, figure.low, figure.high, row.dataset)
        for row in rows
        if (figure := row.figures.get(y)) is not None
    ]
    return bars_svg(BarPlot(f"{y} of {len(bars)} runs", bars)) if bars else ""
