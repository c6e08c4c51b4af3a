"""What the extractor may write, and what is read from it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgqa.kg.parsing import parse_triples
from kgqa.types import Passage

PASSAGE = Passage.of("Low Tide", "Low Tide is a painting by Oddny Fir; it hangs in Elm Hall.")


def parts(completion: str, passage: Passage = PASSAGE) -> list[tuple[str, str, str]]:
    return [(t.head, t.relation, t.tail) for t in parse_triples(completion, passage).triples]


def malformed(completion: str) -> int:
    return parse_triples(completion, PASSAGE).malformed


def test_triples_are_read_one_a_line_or_several() -> None:
    one_a_line = "\n<Low Tide; painter; Oddny Fir>\n<Low Tide; place; Elm Hall>\n"
    several = "<Low Tide; painter; Oddny Fir>, <Low Tide; place; Elm Hall>"
    assert (
        parts(one_a_line) == parts(several) == [("Low Tide", "painter", "Oddny Fir"), ("Low Tide", "place", "Elm Hall")]
    )


def test_a_triple_names_its_passage() -> None:
    [triple] = parse_triples("<Low Tide; painter; Oddny Fir>", PASSAGE).triples
    assert triple.passage_id == PASSAGE.id


def test_the_last_two_semicolons_split() -> None:
    passage = Passage.of("Stay; a song", "")
    assert parts("<Stay; a song; year; 1901>", passage) == [("Stay; a song", "year", "1901")]


def test_a_repeated_triple_is_kept_once_and_is_not_malformed() -> None:
    text = "<Low Tide; painter; Oddny Fir>\n<Low Tide;painter;  Oddny Fir >"
    assert parts(text) == [("Low Tide", "painter", "Oddny Fir")]
    assert malformed(text) == 0


@pytest.mark.parametrize(
    ("head", "becomes"),
    [("low tide", "low tide"), ("Oddny fir", "Oddny fir"), ("The painting's owner", "Low Tide")],
)
def test_a_head_unknown_to_the_passage_becomes_its_title(head: str, becomes: str) -> None:
    assert parts(f"<{head}; year; 1881>") == [(becomes, "year", "1881")]


def test_triples_in_doubt_are_told_apart() -> None:
    replacing, of_another = "<The owner; year; 1881>", "<Oddny Fir; place; elm  hall>"
    good = "<LOW TIDE; painter; Oddny Fir>\n<Low Tide; of; Low Tide>"
    found = parse_triples(f"{replacing}\n{of_another}\n{good}", PASSAGE)
    replaced, other, named, itself = found.triples
    assert found.replaced_heads == {replaced}
    assert found.other_heads == {other}
    assert found.absent_tails == {replaced}
    assert (named.head, itself.tail) == ("LOW TIDE", "Low Tide")


def test_an_unknown_head_stays_where_the_passage_has_no_title() -> None:
    assert parts("<Alder; year; 1881>", Passage.of("", "A text.")) == [("Alder", "year", "1881")]


@pytest.mark.parametrize(
    "completion",
    [
        "<Low Tide; painter>",
        "<Low Tide; ; 1881>",
        "<; painter; Fir>",
        "<>",
        "<a, b, c>",
        "<a; b; c",
        "a; b; c",
        "<a; b; c\n>",
    ],
)
def test_a_malformed_triple_is_counted_and_skipped(completion: str) -> None:
    assert parts(completion) == []
    assert malformed(completion) == 1


@pytest.mark.parametrize("completion", ["", "\n\n", "Here are the triples:", "The text states nothing."])
def test_chatter_is_neither_a_triple_nor_malformed(completion: str) -> None:
    assert parse_triples(completion, PASSAGE).triples == ()
    assert malformed(completion) == 0


@given(
    st.text(alphabet=st.sampled_from("<>⟨⟩;,. abA\n\r\u2028"), max_size=60), st.text(max_size=5), st.text(max_size=9)
)
def test_any_string_is_read_and_nothing_is_invented(completion: str, title: str, text: str) -> None:
    passage = Passage("p", title, text)
    found = parse_triples(completion, passage)
    assert found.malformed >= 0
    assert len(set(found.triples)) == len(found.triples)
    for triple in found.triples:
        assert triple.head in completion or triple.head == title.strip()
        assert triple.relation in completion
        assert triple.tail in completion
        assert all(part and part == part.strip() for part in (triple.head, triple.relation, triple.tail))


@given(st.text())
def test_any_unicode_is_survived(completion: str) -> None:
    parse_triples(completion, PASSAGE)
