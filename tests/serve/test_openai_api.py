"""Requests of OpenAI's protocol become calls, and replies become its responses."""

from __future__ import annotations

import json

import pytest

from kgqa.calls import Generate
from kgqa.errors import EngineError, PromptTooLong
from kgqa.extras.serve.session import AgentAbilities
from kgqa.types import Completion, GeneratedToken, Json, Message, ToolCall, Usage
from tests.serve.worlds import chat, open_world, post

TOOLS: Json = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
CALLED = Completion(
    "", usage=Usage(7, 0, 3), tool_calls=(ToolCall("call_1", "look", '{"at": "map"}'),)
)


def test_chat_has_text_usage_and_finish() -> None:
    with open_world([Completion("Ann", "length", Usage(7, 2, 3, 0.0, 1), thought="hm")]) as (
        address,
        world,
        _,
    ):
        body = chat(address, temperature=0, max_tokens=9).json()
    (choice,) = body["choices"]
    assert choice["message"] == {"role": "assistant", "content": "Ann", "reasoning_content": "hm"}
    assert (choice["finish_reason"], body["model"]) == ("length", "stand-in")
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (7, 3)
    assert world.generations[0].max_tokens == 9


CONVERSATION: list[Json] = [
    {"role": "developer", "content": "Be short."},
    {"role": "user", "content": [{"type": "text", "text": "Who"}, {"type": "text", "text": "?"}]},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "1", "content": "Ann"},
]


def test_all_roles_become_messages() -> None:
    with open_world(["Ann"]) as (address, world, _):
        chat(address, messages=CONVERSATION)
    assert world.generations[0].prompt.messages == (
        Message("system", "Be short."),
        Message("user", "Who?"),
        Message("assistant", "", (ToolCall("1", "f", "{}"),)),
        Message("tool", "Ann", answers="1"),
    )


def test_tools_are_passed_on_and_called() -> None:
    with open_world([CALLED]) as (address, world, _):
        (choice,) = chat(address, tools=TOOLS).json()["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["function"] == {
        "name": "look",
        "arguments": '{"at": "map"}',
    }
    assert json.loads(world.generations[0].tools or "") == TOOLS


@pytest.mark.parametrize(
    ("choice", "expected"),
    [("auto", None), ("required", '"required"'), ({"type": "function"}, '{"type": "function"}')],
    ids=["auto", "required", "named"],
)
def test_choice_among_tools_is_passed_on(choice: Json, expected: str | None) -> None:
    with open_world([CALLED]) as (address, world, _):
        chat(address, tools=TOOLS, tool_choice=choice)
    assert world.generations[0].tool_choice == expected


def test_tools_can_be_switched_off() -> None:
    with open_world(["Ann"]) as (address, world, _):
        chat(address, tools=TOOLS, tool_choice="none")
    assert world.generations[0].tools is None


def test_completion_is_cut_at_stop_strings() -> None:
    with open_world([Completion("<s>a", stopped_by="</s>")]) as (address, world, _):
        body: Json = {
            "prompt": "Once",
            "stop": ["</s>"],
            "temperature": 0,
            "include_stop_str_in_output": True,
        }
        (choice,) = post(f"{address}/v1/completions", body).json()["choices"]
    call = world.generations[0]
    assert (choice["text"], choice["stop_reason"]) == ("<s>a</s>", "</s>")
    assert (call.stop, call.prompt.form, call.thoughts, call.max_tokens) == (
        ("</s>",),
        "completion",
        "keep",
        16,
    )


def test_prefill_continues_the_last_message() -> None:
    messages: Json = [
        {"role": "user", "content": "Who?"},
        {"role": "assistant", "content": "It was"},
    ]
    with open_world(["Ann"]) as (address, world, _):
        chat(address, messages=messages, continue_final_message=True)
    prompt = world.generations[0].prompt
    assert (prompt.prefill, len(prompt.messages)) == ("It was", 1)


def test_several_replies_have_different_seeds() -> None:
    with open_world(["a", "b", "c"]) as (address, world, _):
        body = chat(address, n=3, temperature=1).json()
    assert [choice["message"]["content"] for choice in body["choices"]] == ["a", "b", "c"]
    assert len({call.seed for call in world.generations}) == 3


def test_sampled_requests_have_reproducible_seeds() -> None:
    seeds = []
    for _ in range(2):
        with open_world(["a", "b"]) as (address, world, _):
            chat(address, temperature=1)
            chat(address, temperature=1)
            seeds.append([call.seed for call in world.generations])
    assert seeds[0] == seeds[1]
    assert seeds[0][0] != seeds[0][1]


def test_seed_depends_on_the_question() -> None:
    seeds = set()
    for key in ("q1", "q2"):
        with open_world(["a"], key=key) as (address, world, _):
            chat(address, temperature=1)
            seeds.add(world.generations[0].seed)
    assert len(seeds) == 2


def test_schema_of_a_response_format_is_followed() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    with open_world(["{}"]) as (address, world, _):
        chat(
            address,
            response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": schema}},
        )
    assert json.loads(world.generations[0].schema or "") == schema


def test_request_of_a_role_is_answered_by_it() -> None:
    with open_world(["a", "b"]) as (address, world, _):
        chat(address, model="judge")
        chat(address, model="gpt-5")
    assert [call.role for call in world.generations] == ["judge", "reader"]


@pytest.mark.parametrize("reply", [Completion("Ann"), CALLED], ids=["text", "tool call"])
def test_stream_ends_with_usage(reply: Completion) -> None:
    with open_world([reply]) as (address, _, _):
        response = chat(address, stream=True, stream_options={"include_usage": True}, tools=TOOLS)
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    *parts, usage = map(json.loads, lines[:-1])
    deltas = [part["choices"][0]["delta"] for part in parts]
    assert lines[-1] == "[DONE]"
    assert "usage" in usage
    assert deltas[0].get("content") == (reply.text or None)
    assert len(deltas[0].get("tool_calls", ())) == len(reply.tool_calls)
    assert parts[-1]["choices"][0]["finish_reason"] == (
        "tool_calls" if reply.tool_calls else "stop"
    )


INVALID: dict[str, tuple[dict[str, Json], str]] = {
    "no message": ({"messages": []}, "messages"),
    "unknown role": ({"messages": [{"role": "robot", "content": "a"}]}, "role"),
    "image": ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "image_url"),
    "penalty": ({"presence_penalty": 0.5}, "presence_penalty"),
    "too many replies": ({"n": 100_000}, "n"),
    "negative": ({"max_tokens": -1}, "max_tokens"),
    "temperature": ({"temperature": "hot"}, "temperature"),
}


@pytest.mark.parametrize(("keys", "named"), INVALID.values(), ids=INVALID)
def test_invalid_request_is_an_error_of_400(keys: dict[str, Json], named: str) -> None:
    with open_world() as (address, world, _):
        response = chat(address, **keys)
    assert response.status_code == 400
    assert named in response.json()["error"]["message"]
    assert not world.calls


@pytest.mark.parametrize(
    "body", ["", "[]", "{", '"a"', "[" * 100_000], ids=["empty", "list", "cut", "text", "deep"]
)
def test_body_without_an_object_is_an_error_of_400(body: str) -> None:
    import requests

    with open_world() as (address, _, _):
        assert (
            requests.post(f"{address}/v1/chat/completions", data=body, timeout=30).status_code
            == 400
        )


ERRORS: dict[str, tuple[Exception, int]] = {
    "engine": (EngineError("overloaded"), 424),
    "too long": (PromptTooLong(9, 8), 400),
    "unexpected": (RuntimeError("oops"), 400),
}


@pytest.mark.parametrize(("error", "status"), ERRORS.values(), ids=ERRORS)
def test_failed_call_is_an_error_without_retries(error: Exception, status: int) -> None:
    with open_world([error]) as (address, _, _):
        response = chat(address)
    assert response.status_code == status
    assert str(error) in response.json()["error"]["message"]


def test_tools_need_an_engine_with_functions() -> None:
    with open_world(abilities=AgentAbilities("stand-in")) as (address, _, _):
        assert "no function calls" in chat(address, tools=TOOLS).text


def test_server_without_a_model_says_so() -> None:
    with open_world(abilities=AgentAbilities(search=True)) as (address, _, _):
        assert "no model" in chat(address).text


def test_models_lists_the_reader() -> None:
    import requests

    with open_world() as (address, _, _):
        listed = requests.get(f"{address}/v1/models", timeout=30).json()
    assert [model["id"] for model in listed["data"]] == ["stand-in"]


def test_calls_are_plain_generate_calls() -> None:
    with open_world(["Ann"]) as (address, world, _):
        chat(address, temperature=0)
    assert isinstance(world.calls[0], Generate)
    assert world.calls[0].seed is None


LISTS = AgentAbilities("stand-in", logprobs=True)
LISTED = Completion(
    "Ann",
    tokens=(
        GeneratedToken("An", -0.5, 7, (("An", -0.5), ("Bo", -1.0))),
        GeneratedToken("n", -0.25, 8),
    ),
    prompt_ids=(1, 2),
)


def test_chat_lists_the_tokens_of_a_reply() -> None:
    with open_world([LISTED], abilities=LISTS) as (address, world, _):
        (choice,) = chat(address, logprobs=True, top_logprobs=2).json()["choices"]
    first, second = choice["logprobs"]["content"]
    assert (first["token"], first["logprob"], first["bytes"]) == ("An", -0.5, [65, 110])
    assert [other["token"] for other in first["top_logprobs"]] == ["An", "Bo"]
    assert second["top_logprobs"] == []
    assert world.generations[0].logprobs == 2


def test_completion_lists_the_tokens_of_a_reply() -> None:
    with open_world([LISTED], abilities=LISTS) as (address, _, _):
        (choice,) = post(f"{address}/v1/completions", {"prompt": "Who", "logprobs": 2}).json()[
            "choices"
        ]
    assert choice["logprobs"] == {
        "tokens": ["An", "n"],
        "token_logprobs": [-0.5, -0.25],
        "top_logprobs": [{"An": -0.5, "Bo": -1.0}, {}],
        "text_offset": [0, 2],
    }


@pytest.mark.parametrize(
    ("path", "keys"),
    [("chat/completions", {"messages": [{"role": "user", "content": "Who"}], "logprobs": True}),
     ("completions", {"prompt": "Who", "logprobs": 0})],
    ids=["chat", "text"],
)  # fmt: skip
def test_token_ids_are_in_the_form_of_vllm(path: str, keys: dict[str, Json]) -> None:
    with open_world([LISTED], abilities=LISTS) as (address, _, _):
        body = post(f"{address}/v1/{path}", {**keys, "return_token_ids": True}).json()
    (choice,) = body["choices"]
    assert choice["token_ids"] == [7, 8]
    assert (choice if path == "completions" else body)["prompt_token_ids"] == [1, 2]


def test_token_ids_are_in_streams() -> None:
    keys = {"logprobs": True, "return_token_ids": True, "stream": True}
    with open_world([LISTED], abilities=LISTS) as (address, _, _):
        text = chat(address, **keys).text
    first, *_ = (json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {"))
    assert first["choices"][0]["token_ids"] == [7, 8]
    assert first["prompt_token_ids"] == [1, 2]


WITHOUT_LOGPROBS: dict[str, tuple[AgentAbilities, dict[str, Json], str]] = {
    "engine": (AgentAbilities("stand-in"), {"logprobs": True}, "this engine does not list"),
    "too many": (LISTS, {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    "ids only": (LISTS, {"return_token_ids": True}, "request logprobs, too"),
    "no ids": (LISTS, {"logprobs": True, "return_token_ids": True}, "does not list the ids"),
}


@pytest.mark.parametrize(
    ("abilities", "keys", "named"), WITHOUT_LOGPROBS.values(), ids=WITHOUT_LOGPROBS
)
def test_missing_logprobs_are_rejected(
    abilities: AgentAbilities, keys: dict[str, Json], named: str
) -> None:
    reply = Completion("Ann", tokens=(GeneratedToken("Ann", -0.5),))
    with open_world([reply], abilities=abilities) as (address, _, _):
        response = chat(address, **keys)
    assert response.status_code == 400
    assert named in response.json()["error"]["message"]


PREFILLS: dict[str, Json] = {
    "chat/completions": {"continue_final_message": True},
    "messages": {"max_tokens": 9},
}


@pytest.mark.parametrize(("path", "keys"), PREFILLS.items(), ids=PREFILLS)
def test_prefill_is_rejected_by_name(path: str, keys: dict[str, Json]) -> None:
    messages: Json = [
        {"role": "user", "content": "Who?"},
        {"role": "assistant", "content": "It was"},
    ]
    with open_world(abilities=AgentAbilities("stand-in", prefill=False)) as (address, world, _):
        response = post(f"{address}/v1/{path}", {"messages": messages, **keys})
    assert response.status_code == 400
    assert "prefill" in response.text
    assert not world.calls
