"""The reader and the baselines without, with all and with the gold passages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kgqa.calls import Generate, Rank, Search
from kgqa.errors import ConfigError, DataError
from kgqa.methods.baselines import AllDocuments, ChainOfThought, Golden, NoContext
from kgqa.methods.retrieve import remove_question_words
from kgqa.protocols import Method
from kgqa.testing import drive
from kgqa.types import Answer, Completion, Passage, Question
from tests import method_world
from tests.thoughts_world import ALDER, BIRCH, CEDAR, DOGWOOD, ONLY, QUESTION, READ, World

PASSAGES = tuple(Passage.of(f"T{i}", f"text {i}") for i in range(3))
ASKED = Question("q1", "Which one?", ("T2",), PASSAGES, frozenset({PASSAGES[2].id, PASSAGES[1].id}))


def answer(
    method: Method, reply: str | Completion, question: Question = ASKED
) -> tuple[Answer, Generate]:
    world = method_world.World([reply])
    return drive(method.answer(question), world), world.generations[0]


def test_chain_of_thought_reasons_without_passages() -> None:
    result, call = answer(ChainOfThought(64), " T2 is the third of them.\nAnswer: T2")
    assert (result.text, result.evidence, result.notes["thought"].strip()[:2]) == ("T2", (), "T2")
    assert call.max_tokens == 64
    assert not any(passage.text in call.prompt.messages[0].content for passage in PASSAGES)
    unmarked, _ = answer(ChainOfThought(64), Completion("T2 is the third", "length"))
    assert (unmarked.flags["no_answer_marker"], unmarked.flags["cut_reply"]) == (1, 1)


def test_no_context_and_all_documents_prompts() -> None:
    result, call = answer(NoContext("zero_shot", 25), " T2")
    assert result == Answer("T2", context_tokens=0)
    assert "ontext" not in call.prompt.messages[0].content
    assert (call.max_tokens, call.role) == (25, "reader")
    result, call = answer(AllDocuments(25), "T2")
    context = "Title: T0\ntext 0\n\nTitle: T1\ntext 1\n\nTitle: T2\ntext 2"
    assert context in call.prompt.messages[0].content
    assert (result.evidence, result.context_tokens) == (
        tuple(passage.id for passage in PASSAGES),
        len(context.split()),
    )


@pytest.mark.parametrize(
    ("reply", "text", "flags"),
    [
        pytest.param(" Paris.\nBecause it is.", "Paris.", {}, id="first line"),
        pytest.param('"Paris"', '"Paris"', {}, id="quotes"),
        pytest.param("\n\n", "", {"empty_answer": 1}, id="empty"),
        pytest.param(
            Completion("It is the town of", "length"),
            "It is the town of",
            {"truncated_answer": 1},
            id="truncated",
        ),
        pytest.param(
            Completion("Paris\nIt is the", "length"),
            "Paris",
            {},
            id="truncated after the first line",
        ),
    ],
)
def test_answer_is_the_first_line_of_the_reply(
    reply: str | Completion, text: str, flags: dict[str, int]
) -> None:
    result, _ = answer(NoContext("zero_shot", 25), reply)
    assert (result.text, result.flags) == (text, flags)


def test_retrieve_only_searches_once_and_asks_no_model() -> None:
    world = World([])
    answer = world.answer(ONLY)
    assert (world.calls, answer) == (
        [Search("did the book by Alder appear?", 2)],
        Answer("", (ALDER.id, CEDAR.id)),
    )
    assert ONLY.uses == {"search"}
    assert World([], {}).answer(ONLY) == Answer("", flags={"empty_retrieval": 1})
    results = {"": (BIRCH, CEDAR)}  # Birch has too many words
    short = [
        replace(method, max_passage_words=5)
        for method in (ONLY, READ, replace(ONLY, reranker=True))
    ]
    assert [World(["1901"], results).answer(method).evidence for method in short] == [
        (CEDAR.id,)
    ] * 3


def test_reranker_keeps_the_best_candidates() -> None:
    world = World([], {"": (ALDER, CEDAR, BIRCH, DOGWOOD)})
    answer = world.answer(replace(ONLY, reranker=True))
    assert world.sequence() == ["search did the book by Alder appear?", "rank reranker"]
    [rank] = world.of(Rank)
    assert ([call.k for call in world.of(Search)], rank.query) == ([3], QUESTION.text)
    assert rank.texts == (
        "Alder: Alder wrote Birch.",
        "Cedar: Cedar is a town.",
        "Birch: Birch is a book of 1901.",
    )
    assert answer.evidence == (BIRCH.id, ALDER.id)  # the world prefers long texts
    world, method = World([]), replace(ONLY, scope="own", reranker=True)
    answer = world.answer(method, replace(QUESTION, passages=(*QUESTION.passages, BIRCH)))
    assert method.uses == {"reranker"}
    assert (world.sequence(), answer.evidence) == (["rank reranker"], (BIRCH.id, DOGWOOD.id))


def test_retrieve_read_shows_the_passages() -> None:
    world = World(["1901"])
    answer = world.answer(READ)
    assert world.sequence() == ["search did the book by Alder appear?", "reader few_shot/answer"]
    passages = (
        "Wikipedia Title: Alder\nAlder wrote Birch.\n\nWikipedia Title: Cedar\nCedar is a town."
    )
    assert world.asked() == [f"{passages}\n\nQ: {QUESTION.text}\nA:"]
    assert (answer.text, answer.evidence) == ("1901", (ALDER.id, CEDAR.id))
    # words of "Title: Alder Alder wrote Birch. Title: Cedar Cedar is a town."
    assert answer.context_tokens == 11
    assert READ.uses == {"model", "search"}
    assert (READ.shows[:6], replace(READ, reader="short").shows) == ("here: ", "")
    assert answer.flags == {}
    world, method = World(["1901"]), replace(READ, scope="none")
    answer = world.answer(method)
    assert world.sequence() == ["reader few_shot/answer"]
    assert "Wikipedia Title" not in world.prompts()[0]
    assert method.uses == {"model"}
    assert (answer.text, answer.evidence, answer.flags) == ("1901", (), {})


@pytest.mark.parametrize(
    ("question", "query"),
    [
        pytest.param(
            "Where is the mother of Alder buried?", "the mother of Alder buried?", id="first word"
        ),
        pytest.param("In which town, how and why?", "In town, and", id="every question word"),
        pytest.param(
            "Which came first, How To Avoid It or What Is Elm?",
            "came first, How To Avoid It or What Is Elm?",
            id="no capitalized words",
        ),
        pytest.param("Who?", "Who?", id="no other words"),
        pytest.param(
            "The Whoniverse whose author", "The Whoniverse whose author", id="longer words"
        ),
    ],
)
def test_question_words_leave_the_query(question: str, query: str) -> None:
    assert remove_question_words(question) == query


def test_impossible_settings_are_rejected() -> None:
    with pytest.raises(ConfigError, match=r"method\.candidates=1: fewer than method\.passages=2"):
        replace(READ, reranker=True, candidates=1)
    with pytest.raises(ConfigError, match="then is method=no_context"):
        replace(READ, scope="none", reader="zero_shot")
    with pytest.raises(
        DataError,
        match="question q1: no passage is marked as supporting, but method=golden needs one",
    ):
        answer(Golden("zero_shot", 25), "T2", replace(ASKED, support=frozenset({"elsewhere"})))
