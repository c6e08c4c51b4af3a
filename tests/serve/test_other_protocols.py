"""Anthropic's messages and OpenAI's responses become the same calls as chats."""

from __future__ import annotations

import json

import pytest

from kgqa.types import Completion, Json, Message, ToolCall, Usage
from tests.serve.worlds import open_world, post

CALLED = Completion(
    "", usage=Usage(7, 0, 3), tool_calls=(ToolCall("call_1", "look", '{"at": "map"}'),)
)
LOOK: Json = {
    "type": "function",
    "function": {"name": "look", "description": "", "parameters": {"type": "object"}},
}
USER: Json = [{"role": "user", "content": "Who?"}]


def message(address: str, **keys: Json) -> Json:
    return post(f"{address}/v1/messages", {"max_tokens": 9, "messages": USER, **keys}).json()


def respond(address: str, **keys: Json) -> Json:
    return post(f"{address}/v1/responses", {"input": "Who?", **keys}).json()


def test_message_has_text_and_usage() -> None:
    with open_world([Completion("Ann", "length", Usage(7, 2, 3))]) as (address, world, _):
        body = message(address, system="Be short.", stop_sequences=["\n"])
    assert body["content"] == [{"type": "text", "text": "Ann"}]
    assert (body["stop_reason"], body["usage"]["input_tokens"]) == ("max_tokens", 7)
    assert world.generations[0].prompt.messages == (
        Message("system", "Be short."),
        Message("user", "Who?"),
    )
    assert world.generations[0].stop == ("\n",)


def test_message_calls_tools() -> None:
    tools: Json = [{"name": "look", "input_schema": {"type": "object"}}]
    with open_world([CALLED]) as (address, world, _):
        body = message(address, tools=tools)
    assert body["content"] == [
        {"type": "tool_use", "id": "call_1", "name": "look", "input": {"at": "map"}}
    ]
    assert body["stop_reason"] == "tool_use"
    assert json.loads(world.generations[0].tools or "") == [LOOK]


def test_results_of_tools_are_messages() -> None:
    messages: Json = [
        *USER,
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "1", "name": "look", "input": {}}],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "1", "content": "Ann"}],
        },
        {"role": "assistant", "content": "It was"},
    ]
    with open_world(["Ann"]) as (address, world, _):
        message(address, messages=messages)
    prompt = world.generations[0].prompt
    assert prompt.messages[1:] == (
        Message("assistant", "", (ToolCall("1", "look", "{}"),)),
        Message("tool", "Ann", answers="1"),
    )
    assert prompt.prefill == "It was"


@pytest.mark.parametrize("reply", [Completion("Ann"), CALLED], ids=["text", "tool call"])
def test_message_streams(reply: Completion) -> None:
    with open_world([reply]) as (address, _, _):
        text = post(
            f"{address}/v1/messages", {"max_tokens": 9, "messages": USER, "stream": True}
        ).text
    events = [
        json.loads(line.removeprefix("data: "))
        for line in text.splitlines()
        if line.startswith("data: ")
    ]
    assert [event["type"] for event in events] == [
        "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta",
        "message_stop",
    ]  # fmt: skip
    assert ("Ann" in text) == bool(reply.text)


def test_response_has_text_and_usage() -> None:
    with open_world([Completion("Ann", usage=Usage(7, 2, 3))]) as (address, world, _):
        body = respond(address, instructions="Be short.", max_output_tokens=9)
    assert body["output"][0]["content"][0]["text"] == "Ann"
    assert (body["status"], body["usage"]["total_tokens"]) == ("completed", 10)
    assert world.generations[0].prompt.messages == (
        Message("system", "Be short."),
        Message("user", "Who?"),
    )


def test_response_calls_tools() -> None:
    tools: Json = [
        {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": True}
    ]
    with open_world([CALLED]) as (address, world, _):
        (item,) = respond(address, tools=tools)["output"]
    assert (item["type"], item["call_id"], item["arguments"]) == (
        "function_call",
        "call_1",
        '{"at": "map"}',
    )
    (tool,) = json.loads(world.generations[0].tools or "")
    assert tool["function"] == {"name": "look", "parameters": {"type": "object"}, "strict": True}


def test_items_are_messages() -> None:
    items: Json = [
        {"role": "user", "content": [{"type": "input_text", "text": "Who?"}]},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"},
        {"type": "function_call", "call_id": "2", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "Ann"},
        {"type": "function_call_output", "call_id": "2", "output": "Bo"},
    ]
    with open_world(["Ann"]) as (address, world, _):
        respond(address, input=items)
    user, assistant, *results = world.generations[0].prompt.messages
    assert user == Message("user", "Who?")
    assert [call.id for call in assistant.tool_calls] == ["1", "2"]
    assert results == [Message("tool", "Ann", answers="1"), Message("tool", "Bo", answers="2")]


@pytest.mark.parametrize("reply", [Completion("Ann"), CALLED], ids=["text", "tool call"])
def test_response_streams(reply: Completion) -> None:
    with open_world([reply]) as (address, _, _):
        text = post(f"{address}/v1/responses", {"input": "Who?", "stream": True}).text
    events = [
        json.loads(line.removeprefix("data: "))
        for line in text.splitlines()
        if line.startswith("data: ")
    ]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert (events[0]["type"], events[-1]["type"]) == ("response.created", "response.completed")


INVALID: dict[str, tuple[str, Json, str]] = {
    "no maximum": ("messages", {"messages": USER}, "max_tokens"),
    "forced tool": (
        "messages",
        {
            "messages": USER,
            "max_tokens": 9,
            "tools": [{"name": "a", "input_schema": {}}],
            "tool_choice": {"type": "magic"},
        },
        "tool_choice",
    ),
    "stored conversation": ("responses", {"input": "Who?", "previous_response_id": "r"}, "previous_response_id"),
    "hosted tool": ("responses", {"input": "Who?", "tools": [{"type": "web_search"}]}, "web_search"),
    "image": ("responses", {"input": [{"type": "image_generation_call"}]}, "image_generation_call"),
}  # fmt: skip


@pytest.mark.parametrize(("path", "body", "named"), INVALID.values(), ids=INVALID)
def test_invalid_request_names_its_key(path: str, body: Json, named: str) -> None:
    with open_world() as (address, _, _):
        response = post(f"{address}/v1/{path}", body)
    assert response.status_code == 400
    assert named in response.json()["error"]["message"]
