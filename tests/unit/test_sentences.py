"""The sentence splitter: what ends a sentence and what does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgqa.methods.steps.sentences import sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Alder wrote Birch. Birch is old.", ["Alder wrote Birch.", "Birch is old."]),
        ("The film is by F. W. Elm. He died.", ["The film is by F. W. Elm.", "He died."]),
        ("He met Dr. Fir in St. Alder.", ["He met Dr. Fir in St. Alder."]),
        ("It is No. 5 of all. Yes.", ["It is No. 5 of all.", "Yes."]),
        ("So the answer is: no. The film is old.", ["So the answer is: no.", "The film is old."]),
        ("He moved to Ft. Worth. She died on Dec. 10, 1817.", ["He moved to Ft. Worth.", "She died on Dec. 10, 1817."]),
        ("It is 6 ft. The other is not.", ["It is 6 ft.", "The other is not."]),
        ("He died in Elm, D.C. She did not.", ["He died in Elm, D.C.", "She did not."]),
        ("He joined the U.S. Army.", ["He joined the U.S. Army."]),
        ("It cost 15.4 million. Thus, 1864 - 1811 = 53.", ["It cost 15.4 million.", "Thus, 1864 - 1811 = 53."]),
        ('She said "Go." Then she left.', ['She said "Go."', "Then she left."]),
        ("Is it? It is! Well… Yes", ["Is it?", "It is!", "Well…", "Yes"]),
        ("他是谁？他是王。好", ["他是谁？", "他是王。", "好"]),
        ("no stop at all", ["no stop at all"]),
        ("", []),
        (" \n ", []),
    ],
)
def test_a_text_is_split_where_its_sentences_end(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@given(st.text() | st.text(alphabet="ab AB.?!\"'()。\n "))
def test_nothing_but_blanks_is_lost_and_nothing_is_added(text: str) -> None:
    found = sentences(text)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(sentence and sentence == sentence.strip() for sentence in found)
