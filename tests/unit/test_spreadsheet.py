"""CSV cells that no spreadsheet takes for a formula, and that are read back as they were."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgqa.report.spreadsheet import cell, csv_text, text_of

FORMULAS = ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "=cmd|' /C calc'!A0", "-", "'=1", "''@x", "=", "+a"]


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_is_marked_as_text(text: str) -> None:
    assert cell(text) == f"'{text}"


@pytest.mark.parametrize(
    "value", [-1.5, -3, 0, None, True, "", "a=b", "-1.5", "+3", "1e-5", "-1,200.5", "'", "O'Neill"]
)
def test_numbers_and_all_other_texts_stay_as_they_are(value: object) -> None:
    assert cell(value) is value


@given(st.text(alphabet="'=+-@\t\ra1. ", max_size=6) | st.text())
def test_what_is_read_back_by_the_rule_is_what_was_written(text: str) -> None:
    (row,) = csv.reader(io.StringIO(csv_text([[text, "end"]]), newline=""))
    assert text_of(row[0]) == text
    assert not row[0].startswith(("=", "@", "\t", "\r"))
