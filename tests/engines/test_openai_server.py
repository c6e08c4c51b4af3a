"""engine=openai at llama.cpp's own server against the embedded engine on the same weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kgqa.calls import Generate, ModelCall
from kgqa.engines.weights import Model
from kgqa.errors import ConfigError, EngineError
from kgqa.types import Message, Prompt
from tests.engines.asking import COUNTS, FACTS, ask, choose, largest_difference, texts, write
from tests.engines.conftest import build, server_engine

pytestmark = pytest.mark.weights


@pytest.fixture(scope="module")
def openai(model: Model) -> Iterator[Any]:
    engine = build("openai", model)
    yield engine
    engine.close()


NEAR = 0.03  # nats; what a server still knows of a prompt moves its log-probabilities a little


def answer(engine: Any, call: ModelCall) -> Any:
    [reply] = ask(engine, [call])
    assert not isinstance(reply, Exception), reply
    return reply


@pytest.mark.parametrize("count", COUNTS)
def test_options_beyond_the_servers_list_are_exact(openai: Any, llamacpp: Any, count: int) -> None:
    """At most 20 tokens are listed at a time; 31 options are 62 tokens."""
    call = choose("Which letter?", count, "Answer:")
    reply, exact = answer(openai, call), answer(llamacpp, call)
    assert reply.flags == ()
    assert largest_difference(reply, exact) < NEAR
    assert reply.mass == pytest.approx(exact.mass, rel=0.01)


@pytest.mark.parametrize(("by", "listed"), [("groups", None), ("groups", 2), ("logprobs", None)])
def test_every_way_gives_the_same_probabilities(model: Model, llamacpp: Any, by: str, listed: int | None) -> None:
    call = choose("Which letter?", 5, "Answer:")
    engine = server_engine(model, choose=by, top_logprobs=listed)
    reply, exact = answer(engine, call), answer(llamacpp, call)
    engine.close()
    assert largest_difference(reply, exact) < NEAR


def test_a_list_too_short_is_an_error_where_nothing_else_may_be_done(model: Model) -> None:
    engine = server_engine(model, choose="logprobs", top_logprobs=20)
    [error] = ask(engine, [choose("Which letter?", 31, "Answer:")])
    engine.close()
    assert type(error) is EngineError


def test_the_server_is_given_the_tokens_that_the_embedded_engine_gives(openai: Any, llamacpp: Any) -> None:
    history = (Message("system", "Be brief."), Message("user", "Hi <b>&amp;</b>\n"), Message("assistant", "Yes?"))
    prompts = [
        Prompt("test/chat", (*history, Message("user", "Bye")), "Answer:"),
        Prompt("test/chat", history[1:2]),
        Prompt("test/completion", (Message("user", "Q: why?\nA:"),), form="completion"),
    ]
    for prompt in prompts:
        given = openai._loop.result(openai._client(None).prompt_tokens(prompt, 1))
        assert given == llamacpp._server.tokenize(llamacpp.render(Generate(prompt, 1)))


def test_replies_are_those_of_the_embedded_engine(openai: Any, llamacpp: Any) -> None:
    calls = [write("Tell me a story about a sailor.", 12), write("Name a colour.", 6, temperature=0.7, seed=3)]
    assert texts(ask(openai, list(calls))) == texts(ask(llamacpp, list(calls)))


def test_tokens_found_in_the_servers_cache_are_counted(openai: Any) -> None:
    call = write(f"{FACTS} Who lives in the third house?", 2)
    first, second = answer(openai, call), answer(openai, call)
    assert second.usage.cached_tokens > 0.9 * second.usage.prompt_tokens
    assert second.usage.seconds < first.usage.seconds
    assert first.usage.prompt_tokens == second.usage.prompt_tokens > 300


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"server": "hosted", "top_logprobs": None}, "says it is llamacpp; set engine.server to that"),
        ({"served_model": "another"}, r"not 'another'; set engine.served_model"),
    ],
)
def test_a_server_that_is_not_what_the_configuration_says_is_refused(
    model: Model, wrong: dict[str, Any], told: str
) -> None:
    engine = server_engine(model, **wrong)
    [error] = ask(engine, [write("Hi")])
    engine.close()
    assert isinstance(error, ConfigError)
    assert told in str(error)
