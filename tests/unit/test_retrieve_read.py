"""One-step retrieval, alone and with a reader."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgqa.calls import Rank, Search
from kgqa.errors import ConfigError
from kgqa.methods.retrieve_only import remove_question_words
from kgqa.types import Answer
from tests.thoughts_world import ALDER, BIRCH, CEDAR, DOGWOOD, ONLY, QUESTION, READ, World


def test_retrieve_only_searches_once_and_asks_no_model() -> None:
    world = World([])
    answer = world.answer(ONLY)
    assert world.calls == [Search("did the book by Alder appear?", 2)]
    assert answer == Answer("", (ALDER.id, CEDAR.id))
    assert ONLY.uses == {"search"}


def test_the_question_is_searched_as_it_is_where_words_are_not_stripped() -> None:
    world = World([])
    world.answer(replace(ONLY, strip_question_words=False))
    assert world.calls == [Search(QUESTION.text, 2)]


def test_passages_of_too_many_words_are_left_out() -> None:
    found = {"": (BIRCH, CEDAR)}
    assert World([], found).answer(replace(ONLY, max_passage_words=5)).evidence == (CEDAR.id,)
    assert World(["1901"], found).answer(replace(READ, max_passage_words=5)).evidence == (CEDAR.id,)
    reranked = replace(ONLY, max_passage_words=5, reranker=True)
    assert World([], found).answer(reranked).evidence == (CEDAR.id,)


def test_an_empty_retrieval_is_flagged() -> None:
    assert World([], {}).answer(ONLY) == Answer("", flags={"empty_retrieval": 1})


def test_the_own_scope_searches_the_questions_passages() -> None:
    world, method = World([]), replace(ONLY, scope="own")
    world.answer(method)
    assert [call.pool for call in world.calls if isinstance(call, Search)] == [QUESTION.passages]
    assert method.uses == {"pool"}


def test_a_reranker_orders_the_candidates_and_the_best_are_kept() -> None:
    world = World([], {"": (ALDER, CEDAR, BIRCH, DOGWOOD)})
    answer = world.answer(replace(ONLY, reranker=True))
    assert world.sequence() == ["search did the book by Alder appear?", "rank reranker"]
    search, rank = world.calls
    assert isinstance(search, Search)
    assert search.k == 3
    assert isinstance(rank, Rank)
    assert rank.query == QUESTION.text
    assert rank.texts == ("Alder: Alder wrote Birch.", "Cedar: Cedar is a town.", "Birch: Birch is a book of 1901.")
    assert answer.evidence == (BIRCH.id, ALDER.id)  # the world prefers long texts


def test_reranking_the_own_passages_needs_no_search() -> None:
    world, method = World([]), replace(ONLY, scope="own", reranker=True)
    answer = world.answer(method, replace(QUESTION, passages=(*QUESTION.passages, BIRCH)))
    assert world.sequence() == ["rank reranker"]
    assert answer.evidence == (BIRCH.id, DOGWOOD.id)
    assert method.uses == {"reranker"}


def test_a_question_without_passages_is_not_reranked() -> None:
    method = replace(ONLY, scope="own", reranker=True)
    assert World([]).answer(method, replace(QUESTION, passages=())).flags == {"empty_retrieval": 1}


def test_retrieve_read_shows_the_reader_what_was_found() -> None:
    world = World(["1901"])
    answer = world.answer(READ)
    assert world.sequence() == ["search did the book by Alder appear?", "reader few_shot/answer"]
    passages = "Wikipedia Title: Alder\nAlder wrote Birch.\n\nWikipedia Title: Cedar\nCedar is a town."
    assert world.asked() == [f"{passages}\n\nQ: {QUESTION.text}\nA:"]
    assert (answer.text, answer.evidence) == ("1901", (ALDER.id, CEDAR.id))
    assert answer.context_tokens == 11  # words of "Title: Alder Alder wrote Birch. Title: Cedar Cedar is a town."
    assert answer.flags == {}
    assert READ.uses == {"model", "search"}


def test_the_cot_reader_states_its_answer() -> None:
    world = World(["Alder wrote Birch. So the answer is: 1901."])
    assert world.answer(replace(READ, reader="cot")).text == "1901"


def test_without_retrieval_the_question_stands_alone() -> None:
    world, method = World(["1901"]), replace(READ, scope="none")
    answer = world.answer(method)
    assert world.sequence() == ["reader few_shot/answer"]
    assert "Wikipedia Title" not in world.prompts()[0]
    assert (answer.text, answer.evidence, answer.flags) == ("1901", (), {})
    assert method.uses == {"model"}


def test_an_empty_retrieval_is_flagged_and_answered() -> None:
    answer = World(["1901"], {}).answer(READ)
    assert (answer.text, answer.flags) == ("1901", {"empty_retrieval": 1})


def test_a_reranker_is_named_among_the_needs() -> None:
    assert replace(READ, reranker=True).uses == {"model", "search", "reranker"}
    assert replace(READ, reranker=True, scope="own").uses == {"model", "reranker"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reranker": True, "candidates": 1}, "method.candidates=1: fewer than method.passages=2"),
        ({"scope": "none", "reader": "zero_shot"}, "then is method=no_context"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(READ, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("question", "query"),
    [
        ("Where is the mother of Alder buried?", "the mother of Alder buried?"),
        ("In which town, how and why?", "In town, and"),
        ("Which came first, How To Avoid It or What Is Elm?", "came first, How To Avoid It or What Is Elm?"),
        ("Who?", "Who?"),
        ("", ""),
        ("谁写了这本书", "谁写了这本书"),
        ("The Whoniverse whose author", "The Whoniverse whose author"),
    ],
)
def test_question_words_leave_the_query(question: str, query: str) -> None:
    assert remove_question_words(question) == query


@given(st.text() | st.lists(st.sampled_from(["Who", "is", "How?", "Elm", "“what”"])).map(" ".join))
def test_a_query_is_made_of_the_questions_own_words(question: str) -> None:
    query = remove_question_words(question)
    left = iter(question.split())
    assert all(word in left for word in query.split())
    assert bool(query.strip()) == bool(question.strip())
