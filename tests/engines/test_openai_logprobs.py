"""Log-probabilities of generated tokens, as servers list them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kgqa.errors import EngineError
from kgqa.types import Completion, GeneratedToken, Message, Prompt
from tests.engines.asking import ask, write
from tests.engines.misbehaving import Body, Conversation, Serving, answer, refuse
from tests.engines.openai_calls import asked, engine

CALL = write("Who?", logprobs=2)
PLAIN = replace(CALL, prompt=Prompt("test/plain", (Message("user", "Who?"),), form="completion"))
TOP = [
    {"token": "A", "logprob": -0.5},
    {"token": "B", "logprob": -9999.0},
    {"token": "C", "logprob": -12.0},
]
CHAT: Body = {
    "content": [
        {"token": "A", "logprob": -0.5, "top_logprobs": TOP},
        {"token": "b", "logprob": -0.25},
    ]
}
TEXT: Body = {
    "tokens": ["A", "b"], "token_logprobs": [-0.5, None], "top_logprobs": [{"C": -12.0, "A": -0.5}, None],
}  # fmt: skip


def listing(logprobs: Body, **keys: Any) -> Any:
    """Answer with "Ab" and its tokens."""

    def serve(conversation: Conversation, body: Body) -> None:
        text = {"message": {"content": "Ab"}} if "messages" in body else {"text": "Ab"}
        choice = {**text, "finish_reason": "stop", "logprobs": logprobs, **keys}
        usage = {"prompt_tokens": 3, "completion_tokens": 2}
        conversation.answer(200, {"model": body["model"], "choices": [choice], "usage": usage})

    return serve


def test_chat_lists_tokens(serving: Serving) -> None:
    server = serving(listing(CHAT))
    [reply] = asked(server, [CALL])
    assert reply.tokens == (
        GeneratedToken("A", -0.5, None, (("A", -0.5), ("C", -12.0))),
        GeneratedToken("b", -0.25),
    )
    [(_, body)] = server.asked
    assert (body["logprobs"], body["top_logprobs"]) == (True, 2)


def test_completion_lists_tokens(serving: Serving) -> None:
    server = serving(listing(TEXT))
    [reply] = asked(server, [PLAIN])
    assert reply.tokens == (
        GeneratedToken("A", -0.5, None, (("A", -0.5), ("C", -12.0))),
        GeneratedToken("b", -100.0),
    )
    assert server.asked[0][1]["logprobs"] == 2


def test_vllm_sends_ids(serving: Serving) -> None:
    server = serving(listing(TEXT, token_ids=[7, 8], prompt_token_ids=[1, 2, 3]))
    server.models[:] = []
    opened = engine(server, server="vllm")
    connection = opened._client(None).connection
    # the server of the tests has no other endpoints
    connection._is_checked = True
    opened._client(None).tokens.prompts._stops = {}  # type: ignore[union-attr]
    opened._client(None).tokens.prompts._counts.clear()  # type: ignore[union-attr]
    try:
        [reply] = ask(opened, [PLAIN])
    finally:
        opened.close()
    assert isinstance(reply, Completion), reply
    assert [token.id for token in reply.tokens] == [7, 8]
    assert reply.prompt_ids == (1, 2, 3)
    assert server.asked[0][1]["return_token_ids"] is True


def test_ids_of_llamacpp_are_read(serving: Serving) -> None:
    listed = {"content": [{"id": 5, "token": "A", "logprob": -0.5}]}
    [reply] = asked(serving(listing(listed)), [CALL])
    assert [token.id for token in reply.tokens] == [5]


def test_reply_without_tokens_is_an_error(serving: Serving) -> None:
    [error] = asked(serving(answer({"content": "Ab"})), [CALL])
    assert isinstance(error, EngineError)
    assert "logprobs" in str(error)
    # it was paid
    assert error.usage is not None


def test_server_that_rejects_logprobs_is_asked_once(serving: Serving) -> None:
    refused = refuse(400, "logprobs is not supported", param="logprobs")
    server = serving(refused)
    opened = engine(server, concurrency=1)
    try:
        first, second = ask(opened, [CALL])[0], ask(opened, [CALL])[0]
    finally:
        opened.close()
    assert isinstance(first, EngineError)
    assert isinstance(second, EngineError)
    assert len(server.asked) == 2


def test_calls_without_logprobs_ask_for_none(serving: Serving) -> None:
    server = serving()
    asked(server, [replace(CALL, logprobs=None)])
    assert "logprobs" not in server.asked[0][1]
