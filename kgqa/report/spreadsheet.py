"""Cells of a CSV file as spreadsheets must get them: a text that they would take for a formula is marked as text.

The rule for reading: of a cell that begins with ' and then (after any more ') one of = + - @, tab or CR, the first
' is not part of the text. So what is read is what was written, whatever it is. Numbers stay numbers, those that are
texts (-1.5) too.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from typing import TypeVar

V = TypeVar("V")
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?(\d[\d,]*)?\.?\d+(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """The rows, a line each, which ends in "\\n"."""
    lines = []
    for row in rows:
        line = io.StringIO(newline="")
        # Python quotes a lone CR only where lines end in one, and readers would end the line there
        csv.writer(line, lineterminator="\r\n").writerow(map(cell, row))
        lines.append(line.getvalue().removesuffix("\r\n") + "\n")
    return "".join(lines)


def cell(value: V) -> V | str:
    """Return what is written for a value; texts alone are changed."""
    if not isinstance(value, str) or not _FORMULA.match(value) or _NUMBER.fullmatch(value):
        return value
    return f"'{value}"


def text_of(cell_text: str) -> str:
    """Return what a text's cell says."""
    return cell_text[1:] if cell_text.startswith("'") and _FORMULA.match(cell_text) else cell_text
