"""Columns, filter and order of the table of runs, and the plots of their figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from kgqa.report.columns import columns, name_by_settings
from kgqa.report.plots import Bar, BarPlot, Plot, Point, Series
from kgqa.viewer.folder import FIELDS, Row

_IN_COLUMNS = ("dataset", "model", "engine")  # settings that other columns show, or that change no answer
_CHANGES = 3  # settings in a title
COSTS = ("USD / question", "tokens / question")


def columns_of(rows: Sequence[Row]) -> list[str]:
    """Return the columns that are always shown: fields, and the figures that some row has."""
    figures = (column.label for column in columns() if any(column.label in row.figures for row in rows))
    return ["status", "dataset", "model", *figures, "questions", "written"]


def titles_of(rows: Sequence[Row]) -> dict[str, str]:
    """Return a name by key that shows what differs: the method and the settings that differ on this dataset."""
    titles = {}
    for row in rows:
        alike = [each for each in rows if (each.method, each.dataset) == (row.method, row.dataset)]
        differing = [key for key in differing_settings(alike) if not key.startswith(_IN_COLUMNS)]
        # without the keys of a component that differs
        keys = [key for key in differing if "." not in key or key.partition(".")[0] not in differing]
        shown = {key: row.settings[key] for key in keys[:_CHANGES] if key in row.settings}
        name = name_by_settings({"method": row.method} | shown) + " · …" * (len(keys) > _CHANGES)
        titles[row.key] = f"sweep {row.name}" if row.kind == "sweep" else name
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


def column_kind(rows: Iterable[Row], column: str) -> str:
    """Return the class of a column: "figure" is aligned to the right."""
    return "figure" if column == "questions" or any(column in row.figures for row in rows) else ""


def cell_text(row: Row, column: str) -> str:
    if column == "written":
        return f"{datetime.fromtimestamp(row.written):%Y-%m-%d %H:%M}"
    if column in row.figures:
        return str(row.figures[column])
    value = row.value(column)
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def sort_rows(rows: Iterable[Row], column: str) -> list[Row]:
    """Sort by a column: numbers by size, texts by the alphabet, missing values last. `-column` sorts descending."""
    name = column.removeprefix("-")
    known = [row for row in rows if row.value(name) is not None]
    missing = [row for row in rows if row.value(name) is None]

    def key(row: Row) -> Any:
        value = row.value(name)
        return value.lower() if isinstance(value, str) else value

    return [*sorted(known, key=key, reverse=column.startswith("-")), *missing]


def has_words(row: Row, text: str) -> bool:
    """Return whether a row has all words of a filter, such as `trace` or `method=trace`."""
    pairs = {f"{key}={value}".lower() for key, value in row.settings.items()}
    names = f"{row.kind} {row.key} {row.status}".lower()
    return all(word in pairs or word in names for word in text.lower().split())


def draw_plots(rows: Sequence[Row], x: str, y: str) -> dict[str, tuple[BarPlot, Plot]]:
    """Return `y` as bars, and as points against `x`, by dataset. Runs are named by what differs."""
    titles, plots = titles_of(rows), {}
    for dataset in sorted({row.dataset for row in rows if y in row.figures}):
        known = [(titles[row.key], row.figures) for row in rows if row.dataset == dataset and y in row.figures]
        bars = [Bar(title, (each := figures[y]).value, each.low, each.high) for title, figures in known]
        points = [
            Point(figures[x].value, (each := figures[y]).value, each.low, each.high, title)
            for title, figures in known
            if x in figures
        ]
        series = [Series(dataset, points, 0, line=False)]
        plots[dataset] = (
            BarPlot(f"{y} on {dataset}", bars),
            Plot(f"{y} against {x}", x, y, series, x_is_cost=x in COSTS),
        )
    return plots
