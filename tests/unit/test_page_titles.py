"""IIRC: pages named by the model, mapped to the corpus, and searched alone."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgqa.calls import Search
from kgqa.methods.steps.page_titles import nearest_title, parse_titles
from kgqa.types import Passage
from tests.thoughts_world import (
    ALDER,
    BIRCH,
    CEDAR,
    CONCLUDED,
    DOGWOOD,
    IRCOT,
    QUESTION,
    READ,
    WROTE,
    World,
    demonstration,
    with_demonstrations,
)

MAIN = Passage.of("Elm", "Elm read a book by Alder.")
PINNED = replace(QUESTION, pinned=(MAIN,))
FOUND = {"alder": (ALDER, CEDAR), "Birk": (CEDAR, BIRCH), "": (DOGWOOD,)}


def test_ircot_names_pages_maps_them_and_searches_only_there() -> None:
    world = World(['["alder", "Birch Birk"]', WROTE, CONCLUDED, "1901"], FOUND)
    answer = world.answer(IRCOT, PINNED)
    assert world.sequence() == [
        "agent few_shot/titles",
        "search alder",
        "search Birch Birk",
        "search did the book by Alder appear?",
        "agent few_shot/answer",
        f"search {WROTE}",
        "agent few_shot/answer",
        "reader few_shot/answer",
    ]
    scopes = [call.titles for call in world.calls if isinstance(call, Search)]
    assert scopes == [None, None, ("Alder", "Birch"), ("Alder", "Birch")]
    assert answer.notes["pages"] == ("Alder", "Birch")
    assert answer.flags == {}


def test_the_pinned_passage_stands_first_everywhere_and_is_no_evidence() -> None:
    world = World(['["Alder"]', CONCLUDED, "1901"], {"": (ALDER,)})
    answer = world.answer(IRCOT, PINNED)
    assert all(prompt.startswith("Wikipedia Title: Elm\n") for prompt in world.asked())
    assert "Q: The question" in world.asked()[0]
    assert "Name 3 Wikipedia pages" in world.asked()[0]
    assert answer.evidence == (ALDER.id,)


def test_without_retrieval_demonstrations_show_their_pinned_passages_as_the_question_does() -> None:
    """NoR on IIRC: the main passage is part of every input (appendix B)."""
    method = with_demonstrations(replace(READ, scope="none"), demonstration(1), demonstration(2, pinned=(CEDAR,)))
    world = World(["1901"])
    world.answer(method, PINNED)
    one, two, last = world.prompts()[0].split("\n\n\n")
    assert one == "Q: Question 1?\nA: answer 1"
    assert two == "Wikipedia Title: Cedar\nCedar is a town.\n\nQ: Question 2?\nA: answer 2"
    assert last.startswith("Wikipedia Title: Elm\n")


def test_retrieve_read_names_pages_too() -> None:
    world = World(['["alder"]', "1901"], FOUND)
    answer = world.answer(READ, PINNED)
    assert world.sequence()[0] == "agent few_shot/titles"
    assert [call.titles for call in world.calls if isinstance(call, Search)] == [None, ("Alder",)]
    assert answer.notes["pages"] == ("Alder",)


@pytest.mark.parametrize("reply", ["", "no list", '["", " "]', "[, ]", '["Nowhere"]'])
def test_a_reply_without_pages_of_the_corpus_is_flagged_and_the_whole_corpus_searched(reply: str) -> None:
    world = World([reply, CONCLUDED, "1901"], {"Alder": (ALDER,)})
    answer = world.answer(IRCOT, PINNED)
    assert [call.titles for call in world.calls if isinstance(call, Search)][-1] is None
    assert answer.flags == {"no_titles": 1}
    assert "pages" not in answer.notes


@pytest.mark.parametrize("changes", [{"titles": 0}, {"scope": "own"}])
def test_no_page_is_named_where_none_is_wanted(changes: dict[str, object]) -> None:
    world = World([CONCLUDED, "1901"], FOUND)
    world.answer(replace(IRCOT, **changes), PINNED)  # type: ignore[arg-type]
    assert "agent few_shot/titles" not in world.sequence()


def test_only_demonstrations_with_a_pinned_passage_show_how_to_name_pages() -> None:
    method = with_demonstrations(IRCOT, demonstration(1), demonstration(2, pinned=(CEDAR,)))
    world = World(['["alder"]', CONCLUDED, "1901"], FOUND)
    world.answer(method, PINNED)
    named = world.prompts()[0]
    assert named.startswith("Wikipedia Title: Cedar\n")
    assert 'Name 1 Wikipedia page that would help to answer it.\nA: ["Gold 2"]' in named
    assert "Question 1?" not in named


def test_at_most_so_many_pages_are_searched_as_were_asked_for() -> None:
    world = World(['["a", "b", "c", "d"]', "1901"], FOUND)
    world.answer(READ, PINNED)
    assert world.sequence()[1:4] == ["search a", "search b", "search c"]
    assert world.sequence()[4] == "search did the book by Alder appear?"


@pytest.mark.parametrize(
    ("reply", "titles"),
    [
        ('["Alder", "Birch"]', ["Alder", "Birch"]),
        ('["Alder", "Bir', ["Alder"]),
        ('"Alder" and "Alder"', ["Alder"]),
        ('["A \\"great\\" elm"]', ['A "great" elm']),
        ('["Caf\\u00e9"]', ["Café"]),
        ('["C\\elm"]', ["C\\elm"]),
        ("['Alder']", ["Alder"]),
        ("[Alder, Birch]", ["Alder", "Birch"]),
        ("Alder, Birch Tree,", ["Alder", "Birch Tree"]),
        ("1. Alder, 2. Birch, - 1984", ["Alder", "Birch", "1984"]),
        ("Alder", ["Alder"]),
        ('["Elm, Ohio", Birch]', ["Elm, Ohio"]),
        ("", []),
    ],
)
def test_titles_are_what_stands_in_quotes_or_between_commas(reply: str, titles: list[str]) -> None:
    assert parse_titles(reply) == titles


@given(st.text() | st.text(alphabet='["\\], \nabu0'))
def test_titles_are_never_made_up(reply: str) -> None:
    for title in parse_titles(reply):
        assert title
        assert title in reply or "\\" in reply


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), max_size=5))
def test_a_list_of_titles_is_read_as_it_was_written(titles: list[str]) -> None:
    wanted = list(dict.fromkeys(title.strip() for title in titles if title.strip()))
    assert parse_titles(json.dumps(titles)) == wanted


def test_the_nearest_title_shares_most_words_and_ties_go_to_the_better_rank() -> None:
    passages = tuple(Passage.of(title, "") for title in ("Elm Town", "Elm, Ohio", "Ohio elm"))
    assert nearest_title("elm (ohio)", passages) == "Elm, Ohio"
    assert nearest_title("Fir", passages) == "Elm Town"
    assert nearest_title("Fir", ()) is None
