"""Terms as Lucene's EnglishAnalyzer makes them: its own output is in lucene_english.jsonl, see scripts/lucene."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgqa.retrieval import analysis
from kgqa.retrieval.analysis import LONGEST, terms

ROWS = [json.loads(line) for line in (Path(__file__).parent / "lucene_english.jsonl").read_text("utf-8").splitlines()]


def test_the_terms_are_lucenes() -> None:
    """But for the narrow blank of "10 000", which joins its word as in Lucene and is written as an underscore."""
    for row in ROWS:
        assert terms(str(row["text"])) == [term.replace("\u202f", "_") for term in row["terms"]]


@given(st.text(), st.text())
def test_a_blank_separates_words_for_good(first: str, second: str) -> None:
    assert terms(f"{first} {second}") == terms(first) + terms(second)


@given(st.text())
def test_terms_are_neither_empty_nor_blank(text: str) -> None:
    assert all(term and not term.isspace() for term in terms(text))
    assert analysis.analyze_text(text).split() == terms(text)


@given(st.text(st.characters(max_codepoint=127)))
def test_the_pattern_for_ascii_finds_what_the_one_for_all_letters_finds(text: str) -> None:
    for run in text.split():
        found = [match[0] for match in analysis._ascii_pattern().finditer(run)]
        whole = [match[0] for match in analysis._unicode_pattern().finditer(run)]
        assert [word for word in found if word.strip("_")] == [
            word for word in whole if not set(word) & set("#*\u20e3")
        ]


@pytest.mark.parametrize(
    ("word", "rewritten"),
    [
        ("technologies", "technolog"),
        ("biology", "biology"),  # m("bio") is 0
        ("possibly", "possible"),
        ("nobly", "nobly"),  # m("no") is 0
        ("trekking", "trek"),
        ("hopping", "hopping"),  # as in the paper
        ("falling", "falling"),
        ("brrkking", "brrkking"),  # no vowel before -ing
    ],
)
def test_only_words_of_the_added_rules_are_rewritten(word: str, rewritten: str) -> None:
    assert analysis._as_martin_porter_does(word) == rewritten


def test_a_long_word_is_cut_into_pieces() -> None:
    assert [len(term) for term in terms("7" * (2 * LONGEST + 9))] == [LONGEST, LONGEST, 9]
