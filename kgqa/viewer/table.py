"""Columns, filter and order of the table of runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from kgqa.report.columns import COLUMNS, Measured
from kgqa.viewer.folder import Row

FIELDS = ("dataset", "method", "model", "status", "questions", "written")
TERM = re.compile(r"([^=<>!]+)(!=|=|>|<)(.+)")
Value = float | str | None


def columns_of(rows: Sequence[Row]) -> list[str]:
    """Return the columns that are always shown: fields, and the figures that some row has."""
    return [*FIELDS, *(column.label for column in COLUMNS if any(column.label in row.figures for row in rows))]


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
    if column == "questions" and row.kind == "sweep":
        return row.cells
    if column in row.figures:
        return figure_text(row.figures[column])
    value = row.value(column)
    return row.settings.get(column) or ("" if value is None else f"{value:,}" if isinstance(value, int) else str(value))


def figure_text(figure: Measured) -> str:
    if figure.low is not None:
        return f"{figure.value:.1f} [{figure.low:.1f}, {figure.high:.1f}]"
    return f"{figure.value:,.0f}" if figure.value >= 100 else f"{figure.value:.4g}"


def sort_rows(rows: Iterable[Row], column: str) -> list[Row]:
    """Sort by a column: numbers by size, texts by the alphabet, missing values last; `-column` sorts descending."""
    name = column.removeprefix("-")
    known = [row for row in rows if row.value(name) is not None]
    missing = [row for row in rows if row.value(name) is None]
    return [*sorted(known, key=lambda row: sort_key(row.value(name)), reverse=column.startswith("-")), *missing]


def sort_key(value: Value) -> tuple[bool, float, str]:
    return (True, 0, value.lower()) if isinstance(value, str) else (False, value or 0, "")


def row_filter(text: str) -> Callable[[Row], bool]:
    """Return the test of a filter: words, `key=value`, `key!=value`, `key>number`, `key<number`; all must hold.

    In keys `_` stands for a space, and " / question" can be left out: `tokens<500`, `support_recall>80`.
    """
    tests = [_term(word) for word in text.split()]
    return lambda row: all(test(row) for test in tests)


def _term(word: str) -> Callable[[Row], bool]:
    match = TERM.fullmatch(word)
    if not match:
        return lambda row: word.lower() in row.words
    key, sign, text = match.groups()

    def holds(row: Row) -> bool:
        value = row.value(_column(row, key))
        if sign in ("=", "!="):
            same = str(value).lower() == text.lower() or (isinstance(value, float) and text == f"{value:g}")
            return same == (sign == "=")
        try:
            number = float(text)
        except ValueError:
            return False
        return isinstance(value, int | float) and (value > number if sign == ">" else value < number)

    return holds


def _column(row: Row, key: str) -> str:
    def short(name: str) -> str:
        return name.lower().replace(" / question", "").replace(" ", "_")

    return next((label for label in row.figures if short(label) == key.lower()), key)
