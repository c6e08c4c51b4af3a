"""`model.thinking` on real weights: SmolLM2 was never taught to think, but goes on where a thought is begun for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kgqa.calls import Generate
from kgqa.engines.weights import Model
from kgqa.errors import PromptTooLong
from kgqa.types import Completion, Message, Prompt
from tests.engines.asking import CONTEXT, ask, choose
from tests.engines.conftest import REAL, build, lend

pytestmark = pytest.mark.weights

BUDGET = 24
SCHEMA = (
    '{"type": "object", "properties": {"capital": {"type": "string"}}, "required": ["capital"]}'
)


def where(
    text: str = "What is the capital of France?", max_tokens: int = 8, **fields: Any
) -> Generate:
    return Generate(
        Prompt("test/where", (Message("user", text),), fields.pop("prefill", "")),
        max_tokens,
        **fields,
    )


@pytest.fixture(scope="module", params=REAL)
def pair(request: pytest.FixtureRequest, model: Model) -> Iterator[tuple[Any, Any]]:
    """Every engine that has a model, told to think, and the same not told so."""
    engine = build(request.param, replace(model, thinking=BUDGET))
    plain = lend(request, model)
    yield engine, next(plain)
    engine.close()
    next(plain, None)


def test_reasoning_does_not_shorten_the_answer(pair: tuple[Any, Any]) -> None:
    """Stop strings and schemas are the answer's alone."""
    (reply,) = ask(pair[0], [where()])
    assert isinstance(reply, Completion), reply
    assert reply.thought
    assert reply.text
    assert not any(tag in reply.text + reply.thought for tag in ("<think>", "</think>"))
    assert 0 < reply.usage.reasoning_tokens <= BUDGET
    assert reply.usage.output_tokens - reply.usage.reasoning_tokens <= 8
    assert ("thought_out" in reply.flags) == (reply.usage.reasoning_tokens == BUDGET)
    stopped, formed = ask(pair[0], [where(stop=("e", " ")), where(schema=SCHEMA, max_tokens=40)])
    assert isinstance(stopped, Completion), stopped
    assert isinstance(formed, Completion), formed
    assert "e" in stopped.thought
    assert not {"e", " "} & set(stopped.text)
    assert formed.text.startswith('{"capital": "')
    assert not formed.thought.startswith('{"')


def test_the_prefill_stands_between_thought_and_answer(pair: tuple[Any, Any]) -> None:
    """Pinned to the text: what is written behind it is what the plain engine writes behind the very same text."""
    engine, plain = pair
    call = where(prefill="The capital is", max_tokens=4)
    (reply,) = ask(engine, [call])
    assert isinstance(reply, Completion), reply
    start = f"<think>\n{reply.thought}\n</think>\n\nThe capital is"
    (again,) = ask(plain, [where(prefill=start, max_tokens=4)])
    assert isinstance(again, Completion), again
    assert reply.text == again.text


def test_a_choice_does_not_think(pair: tuple[Any, Any]) -> None:
    call = choose("Which letter comes first? A, B or C?", 3, prefill="Answer:")
    choice, plain = (ask(engine, [call])[0] for engine in pair)
    assert not isinstance(choice, Exception | Completion)
    assert not isinstance(plain, Exception | Completion)
    assert choice.logprobs == pytest.approx(
        plain.logprobs, abs=0.02
    )  # llama.cpp's wobble, see `LlamaCpp`
    assert choice.flags == plain.flags
    assert choice.usage.reasoning_tokens == 0


def test_prompt_without_room_for_reasoning_is_too_long(pair: tuple[Any, Any]) -> None:
    (reply,) = ask(pair[0], [where("word " * (CONTEXT - BUDGET - 30), max_tokens=2)])
    assert isinstance(reply, PromptTooLong)
    assert reply.limit <= CONTEXT - BUDGET - 2


def test_reply_without_reasoning_is_flagged_once(pair: tuple[Any, Any]) -> None:
    plain = Prompt("test/plain", (Message("user", "Paris is"),), form="completion")
    (reply,) = ask(pair[0], [Generate(plain, 4)])
    assert isinstance(reply, Completion), reply
    assert reply.flags == ("no_thinking",)
