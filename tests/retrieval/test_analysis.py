"""Terms as Lucene's EnglishAnalyzer makes them: its own output is in lucene_english.jsonl, see scripts/lucene."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgqa.retrieval import analysis
from kgqa.retrieval.analysis import LONGEST, terms

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parent / "lucene_english.jsonl").read_text("utf-8").splitlines()
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row["text"])[:40])
def test_the_terms_are_lucenes(row: dict[str, Any]) -> None:
    """But for the narrow blank of "10 000", which joins its word as in Lucene and is written as an underscore."""
    assert terms(str(row["text"])) == [term.replace("\u202f", "_") for term in row["terms"]]


@given(st.text(), st.text())
def test_a_blank_separates_words_for_good(first: str, second: str) -> None:
    assert terms(f"{first} {second}") == terms(first) + terms(second)
    assert all(term and not term.isspace() for term in terms(first))
    assert analysis.analyze_text(first).split() == terms(first)


def test_added_rules_stem_words_and_cut_long_ones() -> None:
    """m("bio") and m("no") are 0, hopping stays as in the paper, and brrk has no vowel."""
    words = (
        "technologies",
        "biology",
        "possibly",
        "nobly",
        "trekking",
        "hopping",
        "falling",
        "brrkking",
    )
    expected = [
        "technolog",
        "biology",
        "possible",
        "nobly",
        "trek",
        "hopping",
        "falling",
        "brrkking",
    ]
    assert [analysis._as_martin_porter_does(word) for word in words] == expected
    assert [len(term) for term in terms("7" * (2 * LONGEST + 9))] == [LONGEST, LONGEST, 9]
