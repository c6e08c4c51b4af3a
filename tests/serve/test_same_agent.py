"""The same agent in kgqa and outside of it, over HTTP: see test_transcripts.py for the released transcripts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import requests

from kgqa.calls import Call, Generate
from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.methods.search_agent import SearchAgent
from kgqa.testing import drive
from kgqa.types import Completion, Question
from tests.method_world import World
from tests.serve.test_transcripts import send
from tests.serve.worlds import BRIDGE, MILL, open_world

QUESTION = Question("q", "Who built the mill?", ("Bo",), (BRIDGE, MILL))
TAGS = {
    "search_agent": ("<search>mill", "</search>", "<answer>Bo"),
    "r1_searcher": ("<|begin_of_query|>mill", "<|end_of_query|>", "<answer>Bo"),
}


def send_any(client: requests.Session, address: str, call: Call[Any]) -> Any:
    """Send a call as a program of another author would, also one of a chat."""
    if not isinstance(call, Generate) or call.prompt.form == "completion":
        return send(client, address, call)
    messages = [{"role": each.role, "content": each.content} for each in call.prompt.messages]
    if call.prompt.prefill:
        messages.append({"role": "assistant", "content": call.prompt.prefill})
    body = {
        "messages": messages, "continue_final_message": bool(call.prompt.prefill), "max_tokens": call.max_tokens,
        "temperature": call.temperature, "stop": list(call.stop),
    }  # fmt: skip
    (choice,) = client.post(f"{address}/v1/chat/completions", json=body, timeout=60).json()[
        "choices"
    ]
    return Completion(
        choice["message"]["content"], choice["finish_reason"], stopped_by=choice["stop_reason"]
    )


@pytest.mark.parametrize("name", TAGS)
def test_transcript_has_the_same_bytes_outside(name: str) -> None:
    method: SearchAgent = build(compose([f"method={name}"])["method"], "method")
    agent, (query, stop, answer) = replace(method, scope="own"), TAGS[name]
    replies = [
        Completion(f"I look. {query}", stopped_by=stop),
        Completion(f"Bö. {answer}", stopped_by="</answer>"),
    ]
    inside = drive(agent.answer(QUESTION), World(replies, (BRIDGE, MILL)))
    with open_world(replies) as (address, _, _), requests.Session() as client:
        outside = drive(agent.answer(QUESTION), partial(send_any, client, address))
    assert outside.notes["transcript"].encode() == inside.notes["transcript"].encode()
    assert (outside.text, outside.evidence, outside.notes) == (
        inside.text,
        inside.evidence,
        inside.notes,
    )
    assert inside.text == "Bo"
