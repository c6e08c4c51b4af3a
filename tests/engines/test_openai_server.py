"""engine=openai at llama.cpp's own server against the embedded engine on the same weights."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.engines.asking import COUNTS, ask, choose, largest_difference, texts, write
from tests.engines.conftest import one

pytestmark = pytest.mark.weights


openai = one("openai")
NEAR = 0.03  # nats; what a server still knows of a prompt moves its log-probabilities a little


@pytest.mark.parametrize("count", COUNTS)
def test_options_are_exact(openai: Any, llamacpp: Any, count: int) -> None:
    call = choose("Which letter?", count, "Answer:")
    [reply], [exact] = cast(Any, (ask(openai, [call]), ask(llamacpp, [call])))
    assert reply.flags == ()
    assert largest_difference(reply, exact) < NEAR
    assert reply.mass == pytest.approx(exact.mass, rel=0.01)


def test_replies_are_those_of_the_embedded_engine(openai: Any, llamacpp: Any) -> None:
    calls = [write("Tell me a story about a sailor.", 12), write("Name a colour.", 6, temperature=0.7, seed=3)]
    assert texts(ask(openai, list(calls))) == texts(ask(llamacpp, list(calls)))
