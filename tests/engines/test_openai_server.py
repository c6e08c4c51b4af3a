"""engine=openai at llama.cpp's own server against the embedded engine on the same weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kgqa.calls import ModelCall
from kgqa.engines.weights import Model
from tests.engines.asking import COUNTS, ask, choose, largest_difference, texts, write
from tests.engines.conftest import build

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
def test_options_are_exact(openai: Any, llamacpp: Any, count: int) -> None:
    call = choose("Which letter?", count, "Answer:")
    reply, exact = answer(openai, call), answer(llamacpp, call)
    assert reply.flags == ()
    assert largest_difference(reply, exact) < NEAR
    assert reply.mass == pytest.approx(exact.mass, rel=0.01)


def test_replies_are_those_of_the_embedded_engine(openai: Any, llamacpp: Any) -> None:
    calls = [write("Tell me a story about a sailor.", 12), write("Name a colour.", 6, temperature=0.7, seed=3)]
    assert texts(ask(openai, list(calls))) == texts(ask(llamacpp, list(calls)))
