"""Function calls of a server: what engine=openai sends and reads, and method=tool_agent at a server with faults."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kgqa.calls import Call, CountTokens, Generate, Rank, Search
from kgqa.errors import ConfigError
from kgqa.methods.tool_agent import NO_ROOM, REPEATED
from kgqa.testing import drive
from kgqa.types import Answer, Completion, Message, Passage, Prompt, Question, ToolCall
from tests.composed import built_method
from tests.engines.asking import ask
from tests.engines.misbehaving import Body, Fault, Serving, answer, raw, refuse
from tests.engines.openai_calls import asked, engine

TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
CALLED = ToolCall("a1", "look", '{"at": "sea"}')
TALK = Prompt(
    "test/tools",
    (
        Message("user", "Look."),
        Message("assistant", "", (CALLED,)),
        Message("tool", "It is blue.", answers="a1"),
    ),
)
CALL = Generate(TALK, 20, tools=json.dumps(TOOLS))
OPERA = Passage.of("The Herring Queen", "It is an opera. It was composed by Asbjarne Lyngholt.")
COMPOSER = Passage.of("Asbjarne Lyngholt", "He was a composer. He was born in Fauskenes.")
QUESTION = Question(
    "q",
    "In which town was the composer of The Herring Queen born?",
    ("Fauskenes",),
    (OPERA, COMPOSER),
)


def calling(*calls: tuple[str, Any], content: str | None = None) -> Fault:
    """A reply that calls tools. Arguments that are no text are written as JSON."""
    texts = [
        (name, arguments if isinstance(arguments, str) else json.dumps(arguments))
        for name, arguments in calls
    ]
    functions = [{"name": name, "arguments": text} for name, text in texts]
    tool_calls = [
        {"id": f"id-{at}", "type": "function", "function": each}
        for at, each in enumerate(functions, start=1)
    ]
    return answer({"content": content, "tool_calls": tool_calls}, "tool_calls")


ANSWER = answer({"content": "Lyngholt was born there.\nAnswer: Fauskenes"})


@pytest.mark.parametrize("server", ["hosted", "sglang", "vllm", "llamacpp"])
def test_tools_and_their_results_are_sent(serving: Serving, server: str) -> None:
    """Only the chat endpoint has tools, so no server gets the prompt as tokens."""
    at = serving(ANSWER)
    at.models[:] = []
    opened = engine(at, server=server)
    # the server of the tests has no other endpoints
    opened._client(None).connection._is_checked = True
    try:
        [reply] = ask(opened, [CALL])
    finally:
        opened.close()
    assert isinstance(reply, Completion), reply
    [(_, body)] = at.asked
    function = {"name": "look", "arguments": '{"at": "sea"}'}
    assert body["tools"] == TOOLS
    assert body["messages"] == [
        {"role": "user", "content": "Look."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a1", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "It is blue.", "tool_call_id": "a1"},
    ]


TOOL_CALLS: list[tuple[Any, list[ToolCall]]] = [
    ([{"id": "x", "function": {"name": "look", "arguments": "{}"}}], [ToolCall("x", "look", "{}")]),
    (
        [{"function": {"name": "look", "arguments": {"at": "ö"}}}],
        [ToolCall("call_1", "look", '{"at": "ö"}')],
    ),
    ([{"id": None, "function": {}}] * 2, [ToolCall("call_1", "", ""), ToolCall("call_2", "", "")]),
    (None, []),
]


@pytest.mark.parametrize(
    ("tool_calls", "expected"), TOOL_CALLS, ids=["complete", "no id", "empty", "none"]
)
def test_tool_calls_are_read(serving: Serving, tool_calls: Any, expected: list[ToolCall]) -> None:
    message = {"content": None if tool_calls else "No.", "tool_calls": tool_calls}
    [reply] = asked(serving(answer(message, "tool_calls")), [CALL])
    assert (list(reply.tool_calls), reply.finish, reply.flags) == (expected, "stop", ())


@pytest.mark.parametrize(
    "tool_calls", [calls for calls, _ in TOOL_CALLS if calls], ids=["complete", "no id", "empty"]
)
def test_reasoning_before_a_call_is_complete(serving: Serving, tool_calls: Any) -> None:
    message = {"content": None, "tool_calls": tool_calls, "reasoning": "I look."}
    [reply] = asked(serving(answer(message, "tool_calls")), [CALL])
    assert (reply.thought, "thought_out" in reply.flags) == ("I look.", False)


@pytest.mark.parametrize("tool_calls", ["look", [None], [{"id": "x"}], {"name": "look"}], ids=str)
def test_unreadable_tool_calls_are_requested_once_more(serving: Serving, tool_calls: Any) -> None:
    server = serving(answer({"content": "", "tool_calls": tool_calls}), ANSWER)
    [reply] = asked(server, [CALL])
    assert (reply.text, len(server.asked)) == ("Lyngholt was born there.\nAnswer: Fauskenes", 2)


@pytest.mark.parametrize(
    ("status", "message"),
    [(404, "No endpoints found that support tool use."), (400, "Unsupported parameter: 'tools'")],
)
def test_server_without_tools_names_the_key(serving: Serving, status: int, message: str) -> None:
    """All wordings are in tests/unit/test_server_messages.py."""
    server = serving(always=refuse(status, message))
    [error] = asked(server, [CALL])
    assert isinstance(error, ConfigError), error
    assert str(error).endswith("has no function calls here. Set engine.tools=text.")
    assert len(server.asked) == 1


def test_function_calls_need_the_chat_endpoint(serving: Serving) -> None:
    [error] = asked(serving(), [CALL], endpoints="completions")
    assert (
        str(error)
        == "Function calls need engine=openai and its chat endpoint. Set method.protocol=text."
    )


# method=tool_agent


def run(serving: Serving, *replies: Fault, **changes: Any) -> tuple[Answer, list[Body]]:
    """The agent's answer, and the requests that the server got."""
    server = serving(*replies, always=raw(b"no reply is left", status=401))
    opened = engine(server)

    def reply(call: Call[Any]) -> Any:
        match call:
            case CountTokens():
                return len(call.text.split())
            case Rank():
                return tuple(
                    float(len(set(call.query.split()) & set(text.split()))) for text in call.texts
                )
            case Search():
                return () if call.query == "nothing" else (OPERA, COMPOSER)[: call.k]
        [got] = ask(opened, [call])  # type: ignore[list-item]
        return got

    try:
        answered = drive(
            replace(built_method("tool_agent"), protocol="functions", **changes).answer(QUESTION),
            reply,
        )
    finally:
        opened.close()
    return answered, [body for _, body in server.asked]


def results(body: Body) -> list[str]:
    return [message["content"] for message in body["messages"] if message["role"] == "tool"]


def test_parallel_calls_are_all_answered(serving: Serving) -> None:
    reply, bodies = run(
        serving,
        calling(
            ("keyword_search", {"keywords": ["herring queen"]}),
            ("semantic_search", {"query": "born in"}),
        ),
        calling(("read_chunk", {"chunk_ids": [2]})),
        ANSWER,
    )
    last = bodies[-1]["messages"]
    assert [message["role"] for message in last] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
        "tool",
    ]
    assert [message.get("tool_call_id") for message in last[3:5]] == ["id-1", "id-2"]
    assert results(bodies[-1]) == [
        "[1] The Herring Queen: It is an opera.\n[2] Asbjarne Lyngholt: He was a composer.",
        "[1] The Herring Queen: It is an opera.\n[2] Asbjarne Lyngholt: He was born in Fauskenes.",
        "[2] Asbjarne Lyngholt: He was a composer. He was born in Fauskenes.",
    ]
    names = {tool["function"]["name"] for tool in bodies[0]["tools"]}
    assert names == {"keyword_search", "semantic_search", "read_chunk"}
    assert (reply.text, reply.flags) == ("Fauskenes", {})
    assert reply.evidence == (COMPOSER.id, OPERA.id)
    assert (reply.figures["tool_calls"], reply.figures["chunks_read"]) == (3, 1)


BAD_CALLS = {
    "bad JSON": (
        "semantic_search",
        '{"query": "born',
        "the arguments of semantic_search are not valid JSON",
    ),
    "no object": (
        "semantic_search",
        '["born"]',
        'semantic_search needs the argument "query", a text',
    ),
    "nothing": ("semantic_search", "", 'semantic_search needs the argument "query", a text'),
    "empty": ("keyword_search", '{"keywords": []}', '"keywords" of keyword_search is empty'),
    "null": ("semantic_search", '{"query": null}', '"query" of semantic_search must be a text'),
    "wrong type": (
        "keyword_search",
        '{"keywords": "born"}',
        '"keywords" of keyword_search must be a list of texts',
    ),
    "wrong items": (
        "read_chunk",
        '{"chunk_ids": ["one"]}',
        '"chunk_ids" of read_chunk must be a list of whole',
    ),
    "deep": (
        "semantic_search",
        "[" * 20_000,
        "the arguments of semantic_search are not valid JSON",
    ),
    "half a letter": (
        "semantic_search",
        '{"query": "\\ud800"}',
        "the arguments of semantic_search are not valid JSON",
    ),
    "unknown chunk": ("read_chunk", '{"chunk_ids": [7]}', "there is no chunk 7"),
    "unknown tool": (
        "web_search",
        '{"query": "born"}',
        "there is no tool 'web_search'; the tools are keyword_search",
    ),
    "no name": ("", "{}", "this is no call"),
}


@pytest.mark.parametrize("fault", BAD_CALLS)
def test_invalid_call_is_answered_with_its_error(serving: Serving, fault: str) -> None:
    name, arguments, reason = BAD_CALLS[fault]
    reply, bodies = run(serving, calling((name, arguments)), ANSWER)
    [result] = results(bodies[1])
    assert result.startswith(f"Error: {reason}")
    assert (reply.text, reply.flags) == ("Fauskenes", {"invalid_call": 1})
    # some servers reject arguments that are not JSON
    function = bodies[1]["messages"][2]["tool_calls"][0]["function"]
    assert isinstance(json.loads(function["arguments"]), dict)
    assert function["name"]


def test_endless_calls_end_in_a_forced_answer(serving: Serving) -> None:
    """A repeated call is not made again, however its arguments are written."""
    queries = ({"query": "born"}, '{ "query":"born" }', {"query": "town"})
    turns = [calling(("semantic_search", query)) for query in queries]
    reply, bodies = run(serving, *turns, ANSWER, max_turns=3)
    assert results(bodies[2])[1] == REPEATED
    assert (reply.text, reply.flags) == ("Fauskenes", {"forced_answer": 1, "repeated_call": 1})
    assert "tools" not in bodies[3]
    assert bodies[3]["messages"][-1]["role"] == "user"


@pytest.mark.parametrize(
    "reply",
    [answer({"content": " \n"}), answer({"content": "I have to"}, "length")],
    ids=["blank", "truncated"],
)
def test_reply_without_call_or_answer_is_no_answer(serving: Serving, reply: Any) -> None:
    outcome, _ = run(serving, reply, ANSWER)
    assert outcome.text == "Fauskenes"
    assert {"no_action", "forced_answer", "no_tool_call"} <= set(outcome.flags)


def test_call_in_the_text_of_a_reply_is_read(serving: Serving) -> None:
    text = 'I look.\n<tool_call>\n{"name": "semantic_search", "arguments": {"query": "born"}}\n</tool_call>'
    outcome, bodies = run(serving, answer({"content": text}), ANSWER)
    assert bodies[1]["messages"][2]["content"] == "I look."
    assert len(results(bodies[1])) == 1
    assert (outcome.text, outcome.flags) == ("Fauskenes", {})


def test_chunks_that_do_not_fit_are_dropped(serving: Serving) -> None:
    too_long = refuse(
        400,
        "This model's maximum context length is 90 tokens. Your messages resulted in 91 tokens.",
    )
    search, read = ("semantic_search", {"query": "born"}), ("read_chunk", {"chunk_ids": [1, 2]})
    reply, bodies = run(serving, calling(search), calling(read), too_long, ANSWER)
    assert results(bodies[2])[0].count("\n") == 1
    # the older result loses its last chunk first
    assert results(bodies[3])[0].count("\n") == 0
    assert results(bodies[3])[1].count("\n") == 1
    assert NO_ROOM not in results(bodies[3])
    assert (reply.text, reply.flags) == ("Fauskenes", {"passages_dropped": 1})
    reply, bodies = run(
        serving, calling(search), ANSWER, tools=("semantic_search",)
    )  # shows whole chunks
    assert COMPOSER.text in results(bodies[1])[0]
    assert [tool["function"]["name"] for tool in bodies[0]["tools"]] == ["semantic_search"]
    assert reply.figures["chunks_read"] == 2
