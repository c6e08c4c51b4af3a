"""method=tool_agent by its text protocol, and the snippets that searches show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgqa.calls import Call, CountTokens, Generate, Rank, Search
from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.methods.steps.tools import as_text, read_calls
from kgqa.methods.tool_agent import ToolAgent, find_snippets
from kgqa.testing import drive
from kgqa.types import Answer, Completion, Message, Passage, Question, ToolCall

OPERA = Passage.of("The Herring Queen", "It is an opera. It was composed by Asbjarne Lyngholt.")
COMPOSER = Passage.of("Asbjarne Lyngholt", "He was a composer. He was born in Fauskenes.")
QUESTION = Question("q", "In which town was the composer of The Herring Queen born?", ("Fauskenes",), (OPERA, COMPOSER))
SEARCH = '<tool_call>\n{"name": "semantic_search", "arguments": {"query": "opera"}}\n</tool_call>'


class World:
    """Replies in order, and the calls that the agent made."""

    def __init__(self, replies: Sequence[str]) -> None:
        self.replies, self.calls, self.searches = list(replies), list[Generate](), list[Search]()

    def __call__(self, call: Call[Any]) -> Any:
        match call:
            case CountTokens():
                return len(call.text.split())
            case Rank():
                return (0.0,) * len(call.texts)
            case Search():
                self.searches.append(call)
                return (OPERA, COMPOSER)[: call.k] if call.query != "nothing" else ()
            case Generate():
                self.calls.append(call)
                return Completion(self.replies.pop(0))
        raise AssertionError(call)

    def answer(self, question: Question = QUESTION, **changes: Any) -> Answer:
        agent: ToolAgent = build(compose(["method=tool_agent", "engine=llamacpp"])["method"], "method")
        return drive(replace(agent, **changes).answer(question), self)


def test_results_are_messages_of_the_user() -> None:
    both = f"I look.\n{SEARCH}\n{SEARCH.replace('opera', 'nothing')}"
    world = World([both, "Because.\nAnswer: Fauskenes"])
    answer = world.answer(passages=1)
    assert [message.role for message in world.calls[1].prompt.messages] == ["system", "user", "assistant", "user"]
    assert world.calls[1].prompt.messages[2].content == both
    first, second = "[1] The Herring Queen: It is an opera.", "Nothing was found."
    assert world.calls[1].prompt.messages[3].content == (
        f"<tool_response>\n{first}\n</tool_response>\n<tool_response>\n{second}\n</tool_response>"
    )
    assert {(call.tools, call.stop) for call in world.calls} == {(None, ("<tool_response>",))}
    assert '"name": "keyword_search"' in world.calls[0].prompt.messages[0].content
    assert (answer.text, answer.flags) == ("Fauskenes", {"empty_retrieval": 1})
    assert answer.notes["calls"][0] == ["semantic_search", '{"query": "opera"}', [OPERA.id]]


def test_keywords_are_searched_in_the_scope() -> None:
    call = '<tool_call>{"name": "keyword_search", "arguments": {"keywords": ["Lyngholt", "opera"]}}'
    for scope, pool in (("corpus", None), ("own", QUESTION.passages)):
        world = World([call, "Answer: Fauskenes"])
        world.answer(scope=scope)
        assert world.searches == [Search("Lyngholt; opera", 5, None, pool, ("Lyngholt", "opera"))]


def test_forced_answer_joins_the_last_result() -> None:
    world = World([SEARCH, f"Answer: Fauskenes\n{SEARCH}"])
    answer = world.answer(max_turns=1)
    last = world.calls[1].prompt.messages
    assert [message.role for message in last] == ["system", "user", "assistant", "user"]
    assert "You cannot call more tools." in last[3].content
    assert (answer.text, answer.flags) == ("Fauskenes", {"forced_answer": 1})


def test_a_chunk_is_read_once() -> None:
    read = '<tool_call>{"name": "read_chunk", "arguments": {"chunk_ids": [1, %s]}}</tool_call>'
    world = World([SEARCH, read % "1", read % "2, 9", "Answer: Fauskenes"])
    answer = world.answer()
    shown = world.calls[3].prompt.messages[-1].content
    assert OPERA.text not in shown
    assert COMPOSER.text in shown
    assert "Chunk 1 was read before.\nError: there is no chunk 9" in shown
    assert (answer.evidence, answer.flags) == ((OPERA.id, COMPOSER.id), {"invalid_call": 1})


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("No call.", []),
        (SEARCH, [("semantic_search", '{"query": "opera"}')]),
        ('<tool_call>{"name": "a"}<tool_call>{"name": "b"}', [("a", "{}"), ("b", "{}")]),
        ('<tool_call>\n```json\n{"name": "a", "arguments": "{}"}\n```\n</tool_call>', [("a", "{}")]),
        ("<tool_call>look at it</tool_call>", [("", "look at it")]),
        ('<tool_call>["a"]</tool_call>', [("", '["a"]')]),
        ('<tool_call>{"arguments": {}}</tool_call>', [("", '{"arguments": {}}')]),
        ("<tool_call>", [("", "")]),
        ('<tools>\n{"type": "a", "arguments": {"x": 1}}\n</tools>', [("a", '{"x": 1}')]),
        ('{"name": "a", "arguments": {"name": "x"}}', [("a", '{"name": "x"}')]),
        ('I look.\n```json\n{\n "name": "a",\n "arguments": {}\n}\n```', [("a", "{}")]),
        ('{"name": "a", "arguments": 1}\n{"name": "b", "arguments": 2}', [("a", "1"), ("b", "2")]),
        ('{"name": "a", "arguments": {}}\n{"name": "b", "arg', [("a", "{}"), ("", '{"name": "b", "arg')]),
        ('His data: {"name": "Ann"}', []),
    ],
)
def test_calls_in_a_reply(text: str, calls: list[tuple[str, str]]) -> None:
    before, read = read_calls(text)
    assert [(call.name, call.arguments) for call in read] == calls
    assert text.startswith(before)
    assert (before == text) == (not calls)


@given(
    st.lists(
        st.sampled_from(["<tool_call>", "</tool_call>", "```", '{"name":', '"arguments"', ":", "{", "}", "[", "1"])
    )
)
def test_any_reply_is_read(parts: list[str]) -> None:
    text = "".join(parts)
    before, calls = read_calls(text)
    assert text.startswith(before)
    assert len(calls) == text.count("<tool_call>") or "<tool_call>" not in text


def test_conversation_as_text_alternates() -> None:
    messages = [Message("user", "q"), Message("assistant", "c", (ToolCall("1", "a", "{}"),)), Message("tool", "r")]
    assert as_text([*messages, Message("user", "now")]) == (
        Message("user", "q"),
        Message("assistant", "c"),
        Message("user", "<tool_response>\nr\n</tool_response>\nnow"),
    )


@pytest.mark.parametrize(
    ("query", "text"),
    [
        (["fauskenes"], "He was born in Fauskenes."),
        (["He"], "He was a composer. He was born in Fauskenes."),
        (["Lyngholt"], "He was a composer."),
        ("born in Fauskenes", "He was born in Fauskenes."),
        ("herring", "He was a composer."),
    ],
)
def test_snippets(query: str | list[str], text: str) -> None:
    def rank(call: Call[Any]) -> Any:
        assert isinstance(call, Rank)
        return tuple(float(call.query in each) for each in call.texts)

    empty = Passage.of("Empty", "")
    assert drive(find_snippets([COMPOSER, empty], query), rank) == [
        Passage.of("Asbjarne Lyngholt", text),
        Passage.of("Empty", ""),
    ]
