"""Search agents: what ends a turn, what is shown, and what is flagged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kgqa.calls import Call, CountTokens, Generate, Search
from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.errors import ConfigError, PromptTooLong
from kgqa.methods.search_agent import SearchAgent
from kgqa.testing import drive
from kgqa.types import Answer, Completion, Passage, Question

OPERA = Passage.of("The Herring Queen", "The Herring Queen is an opera by Asbjarne Lyngholt.")
COMPOSER = Passage.of("Asbjarne Lyngholt", "Asbjarne Lyngholt was born in Fauskenes.")
QUESTION = Question("q", "In which town was the composer of The Herring Queen born?", ("Fauskenes",), (OPERA, COMPOSER))


def agent(method: str = "search_agent", **changes: Any) -> SearchAgent:
    built: SearchAgent = build(compose([f"method={method}"])["method"], "method")
    return replace(built, **changes)


class World:
    """Replies in order, and the prompts and searches that the agent made."""

    def __init__(self, replies: Sequence[str | Completion | Exception]) -> None:
        self.replies = list(replies)
        self.calls: list[Generate] = []
        self.queries: list[str] = []

    def __call__(self, call: Call[Any]) -> Any:
        if isinstance(call, CountTokens):
            return len(call.text.split())
        if isinstance(call, Search):
            self.queries.append(call.query)
            return (OPERA, COMPOSER)[: call.k] if call.query != "nothing" else ()
        assert isinstance(call, Generate)
        self.calls.append(call)
        reply = self.replies.pop(0)
        return Completion(reply) if isinstance(reply, str) else reply

    def answer(self, agent: SearchAgent) -> Answer:
        return drive(agent.answer(QUESTION), self)


def test_a_query_is_answered_with_passages_and_the_transcript_goes_on() -> None:
    world = World(["<think>Who?</think>\n<search> opera ", "<think>He.</think> <answer> Fauskenes "])
    answer = world.answer(agent(passages=1))
    shown = f"\n\n<information>Doc 1(Title: {OPERA.title}) {OPERA.text}\n</information>\n\n"
    assert world.queries == ["opera"]
    assert world.calls[1].prompt.prefill == f"<think>Who?</think>\n<search> opera </search>{shown}"
    assert world.calls[0].stop == ("</search>", "</answer>")
    assert {call.thoughts for call in world.calls} == {"keep"}
    assert answer.text == "Fauskenes"
    assert answer.evidence == (OPERA.id,)
    assert answer.figures["searches"] == 1
    assert answer.notes["searches"] == [["opera", [OPERA.id]]]
    assert answer.notes["transcript"].endswith("<answer> Fauskenes </answer>")
    assert answer.flags == {}


@pytest.mark.parametrize(
    ("replies", "searches", "flags"),
    [
        (["I know it.", " Fauskenes\nSo it is."], 0, {"forced_answer": 1, "no_action": 1}),
        (["<search>a", "<search>b", "<search>c", "Fauskenes"], 2, {"forced_answer": 1}),
        (["<search>a", "<search>a", "<answer>Fauskenes"], 2, {"repeated_search": 1}),
        (["<search>nothing", "<answer>Fauskenes"], 1, {"empty_retrieval": 1}),
        (["<search> ", "<answer>Fauskenes"], 1, {"empty_query": 1, "empty_retrieval": 1}),
        ([Completion("I think", "length"), "<answer>Fauskenes"], 0, {"cut_reply": 1}),
        (["An <answer> needs a <search>a", "<answer>Fauskenes"], 1, {}),
    ],
)
def test_what_ends_a_turn_is_flagged(replies: list[str | Completion], searches: int, flags: dict[str, int]) -> None:
    answer = World(replies).answer(agent(max_searches=2))
    assert (answer.text, answer.figures["searches"], answer.flags) == ("Fauskenes", searches, flags)


def test_without_a_forced_answer_it_is_empty() -> None:
    answer = World(["I do not know."]).answer(agent(at_limit="empty"))
    assert (answer.text, answer.flags) == ("", {"no_action": 1, "empty_answer": 1})


def test_passages_that_do_not_fit_are_dropped_from_the_transcript() -> None:
    world = World(["<search>opera", PromptTooLong(100, 99), "<answer>Fauskenes"])
    answer = world.answer(agent())
    assert COMPOSER.text in world.calls[1].prompt.prefill
    assert COMPOSER.text not in world.calls[2].prompt.prefill
    assert OPERA.text in world.calls[2].prompt.prefill
    assert answer.flags == {"passages_dropped": 1}


def test_search_o1_reads_passages_in_a_call_of_their_own() -> None:
    finding = "I look.\n\n**Final Information**\n\nAsbjarne Lyngholt composed it."
    world = World(["<|begin_search_query|>opera", finding, r"So it is \boxed{\text{Fauskenes}}."])
    answer = world.answer(agent("search_o1"))
    start, end = "\n\n<|begin_search_result|>", "<|end_search_result|>\n\n"
    assert OPERA.text in world.calls[1].prompt.messages[0].content
    assert world.calls[1].thoughts == "split"
    assert world.calls[2].prompt.prefill.endswith(f"{start}Asbjarne Lyngholt composed it.{end}")
    assert (answer.text, answer.evidence) == ("Fauskenes", (OPERA.id, COMPOSER.id))


@pytest.mark.parametrize("method", ["search_agent", "r1_searcher", "research", "search_o1", "simple_deep_searcher"])
def test_every_dialect_searches_and_answers(method: str) -> None:
    dialect = agent(method)
    reading = ["**Final Information**\nIt was he."] if dialect.read_prompt else []
    answer = World([f"{dialect.query[0]}opera", *reading, f"{dialect.answer_tags[0]}Fauskenes"]).answer(dialect)
    assert (answer.text, answer.figures["searches"], answer.flags) == ("Fauskenes", 1, {})
    assert dialect.query[1] in dialect.stop


def test_an_unknown_field_of_a_passage_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"method\.passage='\{name\}': fields are \{number\}, \{title\} and \{text\}"):
        agent(passage="{name}")
