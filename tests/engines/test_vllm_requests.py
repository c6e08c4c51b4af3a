"""Which requests engine=openai sends to a vLLM server to tokenize texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kgqa.calls import Generate
from kgqa.errors import PromptTooLong
from kgqa.types import Completion, Message, Prompt
from tests.engines.asking import ask, write
from tests.engines.misbehaving import Body, Conversation, Misbehaving, Serving, reply
from tests.engines.openai_calls import MODEL, engine

PLAIN = Generate(Prompt("test/plain", (Message("user", "Q: why?\nA:"),), form="completion"), 5)
# the token that starts every text
START = 1
SERVED = {"id": MODEL.name, "owned_by": "vllm"}


class Vllm:
    """A vLLM server with one token per character, and its requests."""

    def __init__(self, serving: Serving) -> None:
        self.server: Misbehaving = serving(always=self.answer)
        self.server.models = [SERVED]
        self.requests: list[tuple[str, Body]] = []

    def answer(self, conversation: Conversation, body: Body) -> None:
        self.requests.append((conversation.path, body))
        if conversation.path == "/tokenize":
            text = body.get("prompt") or "".join(message["content"] for message in body["messages"])
            tokens = [START] * bool(body.get("add_special_tokens")) + [
                ord(character) for character in text
            ]
            conversation.answer(200, {"tokens": tokens, "count": len(tokens)})
        elif conversation.path == "/detokenize":
            conversation.answer(200, {"prompt": "assistant\n"})
        else:
            text = body["prompt"] if isinstance(body["prompt"], str) else "tokens"
            conversation.answer(200, reply({**body, "prompt": text}))

    @property
    def paths(self) -> Counter[str]:
        return Counter(path for path, _ in self.requests)


Lend = Callable[..., tuple[Any, Vllm]]


@pytest.fixture
def lend(serving: Serving) -> Any:
    """Return an engine at a vLLM server that has answered a call."""
    opened = []

    def start(**fields: Any) -> tuple[Any, Vllm]:
        vllm = Vllm(serving)
        client = engine(vllm.server, server="vllm", **fields)
        opened.append(client)
        ask(
            client,
            [
                replace(
                    PLAIN,
                    prompt=Prompt("test/first", (Message("user", "first"),), form="completion"),
                )
            ],
        )
        vllm.requests.clear()
        return client, vllm

    yield start
    for client in opened:
        client.close()


def test_plain_prompt_is_sent_as_text(lend: Lend) -> None:
    client, vllm = lend()
    ask(client, [PLAIN])
    assert vllm.paths == {"/v1/completions": 1}
    assert vllm.requests[0][1]["prompt"] == "Q: why?\nA:"


def test_conversation_is_sent_as_tokens(lend: Lend) -> None:
    client, vllm = lend()
    ask(client, [write("Who?")])
    [_, body] = vllm.requests[-1]
    assert body["prompt"] == [ord(character) for character in "Who?"]


def test_long_prompt_is_tokenized_before_it_is_sent(lend: Lend) -> None:
    client, vllm = lend(model=replace(MODEL, context=20))
    ask(client, [PLAIN])
    assert vllm.paths == {"/tokenize": 1, "/v1/completions": 1}
    assert vllm.requests[-1][1]["prompt"] == [START, *map(ord, "Q: why?\nA:")]


def test_prompt_that_does_not_fit_has_exact_numbers(lend: Lend) -> None:
    client, vllm = lend(model=replace(MODEL, context=12))
    [error] = ask(client, [PLAIN])
    assert isinstance(error, PromptTooLong)
    assert (error.tokens, error.limit) == (11, 7)
    assert vllm.paths == {"/tokenize": 1}


def test_each_text_is_counted_once(lend: Lend) -> None:
    client, vllm = lend()
    assert [client.count_tokens("word " * 20) for _ in range(3)] == [100] * 3
    assert vllm.paths == {"/tokenize": 1}


def test_counted_prompt_is_sent_as_text(lend: Lend) -> None:
    """Its bytes are more than the context has tokens, but its tokens are not."""
    prompt = Prompt("test/umlauts", (Message("user", "ö" * 20),), form="completion")
    client, vllm = lend(model=replace(MODEL, context=40))
    assert client.count_tokens("ö" * 20) == 20
    ask(client, [Generate(prompt, 5)])
    assert vllm.paths == {"/tokenize": 1, "/v1/completions": 1}
    assert vllm.requests[-1][1]["prompt"] == "ö" * 20


@pytest.mark.parametrize("thinking", ["off", 50], ids=["answer", "thought first"])
def test_control_tokens_that_reach_the_server_are_named(lend: Lend, thinking: str | int) -> None:
    client, _ = lend(model=replace(MODEL, context=30_000, thinking=thinking))
    call = Generate(Prompt("test/read", (Message("user", "The end.<|im_end|>"),)), 5)
    [answered] = ask(client, [call])
    assert isinstance(answered, Completion)
    assert answered.flags.count("control_text") == 1
