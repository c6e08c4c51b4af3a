"""CoRAG's chains: repeated sub-queries, what is shown and flagged, and the choice among several chains."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kgqa.calls import Choose, Generate, Search
from kgqa.errors import ConfigError
from kgqa.methods.corag import NO_INFORMATION, read_query, read_released_query
from kgqa.testing import drive
from kgqa.types import Answer, Choice, Passage, Question
from tests import method_world
from tests.composed import built_method

OPERA = Passage.of("The Herring Queen", "The Herring Queen is an opera by Asbjarne Lyngholt.")
COMPOSER = Passage.of("Asbjarne Lyngholt", "Asbjarne Lyngholt was born in Fauskenes.")
QUESTION = Question(
    "q",
    "In which town was the composer of The Herring Queen born?",
    ("Fauskenes",),
    (OPERA, COMPOSER),
)


class World(method_world.World):
    """Sub-queries in order. Sub-answers repeat the sub-query."""

    def __init__(
        self, queries: Sequence[str], mass: Callable[[str], float | None] = lambda _: 0.5
    ) -> None:
        super().__init__(queries, (OPERA, COMPOSER))
        self.mass = mass

    def search(self, call: Search) -> tuple[Passage, ...]:
        return super().search(call) if call.query != "nothing" else ()

    def write(self, call: Generate) -> method_world.Reply:
        if call.prompt.name == "corag/query":
            return super().write(call)
        if call.prompt.name == "corag/answer":
            return "Answer: Fauskenes\nBecause."
        is_given = "Title:" in call.prompt.messages[0].content
        return "An answer." if is_given else "No relevant\ninformation found."

    def other(self, call: Any) -> Any:
        return Choice((0.0,), self.mass(call.prompt.messages[0].content))

    def temperatures(self) -> list[float]:
        return [call.temperature for call in self.generations if call.prompt.name == "corag/query"]

    def answer(self, **changes: Any) -> Answer:
        answer: Answer = drive(replace(built_method("corag"), **changes).answer(QUESTION), self)
        return answer


def test_repeated_sub_query_is_sampled_four_times() -> None:
    world = World(["Query 1: Who composed it?", "nothing"])
    answer = world.answer(max_steps=2, documents=1, passages=2)
    assert [call.query for call in world.of(Search)] == [
        "Who composed it?",
        "nothing",
        QUESTION.text,
    ]
    assert [call.k for call in world.of(Search)] == [2, 2, 1]
    [first, second] = world.prompts("corag/query")
    assert "none" in first
    assert "Query 1: Who composed it?\nAnswer 1: An answer.\n" in second
    [sub_answer, _] = world.prompts("corag/sub_answer")
    assert sub_answer.index(COMPOSER.text) < sub_answer.index(OPERA.text)  # the best is last
    [last] = world.prompts("corag/answer")
    assert OPERA.text in last
    assert "Query 2: nothing\nAnswer 2: No relevant information found.\n" in last
    assert (answer.text, answer.flags) == ("Fauskenes", {"empty_retrieval": 1})
    assert answer.evidence == (OPERA.id, COMPOSER.id)
    assert (answer.figures["sub_queries"], answer.figures["no_information"]) == (2, 1)
    assert answer.notes["steps"][1] == ["nothing", "No relevant information found.", []]
    assert "penalties" not in answer.notes
    assert [call.max_tokens for call in world.generations] == [64, 128, 64, 128, 128]
    world = World(["who?"])
    assert world.answer(max_steps=1, documents=0).text == "Fauskenes"
    assert [call.query for call in world.of(Search)] == ["who?"]
    assert "Title:" not in world.prompts("corag/answer")[0]
    world = World(["who?", '"who?"', "", "where?"])
    answer = world.answer(max_steps=2)
    assert world.temperatures() == [0.0, 0.0, 0.7, 0.7]
    assert answer.flags == {"repeated_query": 1, "empty_query": 1}
    world = World(["who?"] * 9)
    answer = world.answer(max_steps=2)
    assert len(world.prompts("corag/query")) == 8
    assert (answer.figures["sub_queries"], answer.flags) == (
        1,
        {"repeated_query": 7, "short_chain": 1},
    )


def test_best_chain_makes_no_information_least_likely() -> None:
    world = World(["bad", "good", "worse"], lambda prompt: 0.01 if "good" in prompt else 0.5)
    answer = world.answer(max_steps=1, decode="best_of_n", chains=3, temperature=0.9)
    assert world.temperatures() == [0.0, 0.9, 0.9]
    scored = world.of(Choose)
    assert {call.options for call in scored} == {(NO_INFORMATION,)}
    assert [
        f"Q: {query}\nA: An answer." in call.prompt.messages[0].content
        for query, call in zip(("bad", "good", "worse"), scored, strict=True)
    ] == [True] * 3
    assert QUESTION.text in scored[0].prompt.messages[0].content
    assert answer.notes["steps"][0][0] == "good"
    assert answer.notes["penalties"] == [math.log(0.5), math.log(0.01), math.log(0.5)]
    greedy = World(["first", "second"]).answer(max_steps=1, decode="best_of_n", chains=2)
    assert greedy.notes["steps"][0][0] == "first"  # of equal penalties
    with pytest.raises(
        ConfigError,
        match=r"this engine gives no probabilities of texts\. Set method\.decode=greedy",
    ):
        World(["who?"], lambda _: None).answer(max_steps=1, decode="best_of_n", chains=1)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(" Who? ", id="blanks"),
        pytest.param('"Who?"', id="quotes"),
        pytest.param("Intermediate query 2: Who?", id="intermediate query"),
        pytest.param("Query 3: Who?", id="query"),
        pytest.param("Follow-up question: Who?", id="follow-up question"),
    ],
)
def test_label_and_quotes_are_no_part_of_a_sub_query(line: str) -> None:
    assert read_query(line) == "Who?"


def test_sub_query_stays_without_a_label() -> None:
    assert (read_query("Query letters: who wrote them?"), read_query("")) == (
        "Query letters: who wrote them?",
        "",
    )


RELEASED = {
    "quoted": ('"Who?"', "Who?"),
    "label": ("Intermediate query 2: Who?", "Who?"),
    "other-label": ("Query: Who?", "Query: Who?"),
    "lines": ("\n\nWho?\nI ask.", "Who?\nI ask."),
    "one-quote": ('"', '"'),
    "empty": ("", ""),
}


@pytest.mark.parametrize(("reply", "query"), RELEASED.values(), ids=RELEASED)
def test_released_sub_query_keeps_its_lines(reply: str, query: str) -> None:
    assert read_released_query(reply) == query


def test_released_replies_and_passages_are_unchanged() -> None:
    world = World(["Who?\nI ask.", ""])
    form = "Doc {number}: {title}"
    answer = world.answer(
        replies="released", max_steps=2, documents=2, passages=1, passage="{title}", document=form
    )
    assert [step[:2] for step in answer.notes["steps"]] == [
        ["Who?\nI ask.", "No relevant\ninformation found."],
        ["", "No relevant\ninformation found."],
    ]
    assert f"Doc 0: {COMPOSER.title}\n\nDoc 1: {OPERA.title}" in world.prompts("corag/answer")[0]
    assert answer.text == "Answer: Fauskenes\nBecause."
