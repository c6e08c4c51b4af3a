"""Cache keys hold what can change a reply, and damaged calls of a trace are one line."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard

from kgqa.artifacts.call_schema import call_json, reply_from_json, reply_json
from kgqa.artifacts.manifest import MANIFEST
from kgqa.artifacts.trace import TRACE, read_trace
from kgqa.cache.key import cache_key
from kgqa.calls import Call, Choose, CountTokens, Generate, Rank, Search
from kgqa.errors import DataError
from kgqa.types import (
    Choice,
    Completion,
    GeneratedToken,
    Json,
    Message,
    Passage,
    Prompt,
    ToolCall,
    Usage,
)

PROMPT = Prompt("trace/select", (Message("system", "s"), Message("user", "u")), prefill="p")
TOOL_CALL = ToolCall("1", "look", "{}")
CALL = Generate(
    PROMPT, max_tokens=10, stop=("\n",), temperature=0.0, top_p=1.0, seed=None, role="reader"
)


def test_key_ignores_role_and_template() -> None:
    messages = [
        (Message("user", "s"), Message("user", "u")),
        (Message("system", "su"), Message("user", "")),
        (Message("system", "s"), Message("user", "u", (TOOL_CALL,))),
        (Message("system", "s"), Message("user", "u", answers="1")),
    ]
    calls: list[Call[Any]] = [
        CALL, replace(CALL, max_tokens=11), replace(CALL, stop=()), replace(CALL, temperature=0.5),
        replace(CALL, logprobs=0), replace(CALL, logprobs=1), replace(CALL, top_p=0.9),
        replace(CALL, seed=1), replace(CALL, thoughts="keep"), replace(CALL, tools="[]"),
        replace(CALL, prompt=replace(PROMPT, prefill="")), replace(CALL, prompt=replace(PROMPT, form="completion")),
        *(replace(CALL, prompt=replace(PROMPT, messages=each)) for each in messages), Choose(PROMPT, ("A", "B")),
    ]  # fmt: skip
    assert len({cache_key({"engine": "e"}, call) for call in calls}) == len(calls)
    assert cache_key({"engine": "e", "dtype": "bfloat16"}, CALL) != cache_key(
        {"engine": "e", "dtype": "float32"}, CALL
    )
    other = replace(CALL, role="judge", prompt=replace(PROMPT, name="judge/verdict"))
    assert cache_key({}, other) == cache_key({}, CALL)


def canonical_key(identity: Json, call: Call[Any]) -> str:
    record = call_json(call)
    for name in ("role", "scorer"):
        record.pop(name, None)
    if "prompt" in record:
        record["prompt"].pop("template")
    canonical = json.dumps(
        [identity, record], sort_keys=True, ensure_ascii=False, separators=(",", ":")
    )
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def test_key_is_the_hash_of_canonical_json() -> None:
    """As keys were made before there was a quicker way, so that every reply kept then is found."""
    text = 'Zürich "quoted" \\ \n\x00\x7f  🌲 \ud800'
    prompts = [
        PROMPT,
        Prompt("few_shot/answer", (Message("user", text),), prefill=text, form="completion"),
    ]
    settings: list[tuple[float, float, int | None, str | None]] = [
        (0.0, 1.0, None, None),
        (0, 1, 7, '{"type": "x"}'),
    ]
    calls: list[Call[Any]] = [
        Generate(prompt, 10, stop, temperature, top_p, seed, schema)
        for prompt in prompts
        for stop in ((), ("\n", text))
        for temperature, top_p, seed, schema in settings
    ]
    calls += [
        Choose(prompt, options) for prompt in prompts for options in (("A", "B"), (text,), ())
    ]
    calls += [
        CountTokens(text),
        Rank(text, (text, "b")),
        Search(text, 3),
        Search("q", 1, titles=(text,), pool=()),
    ]
    identity = {"engine": "e", "b": {"z": 1, "a": [text, 1e-7]}}
    assert [cache_key(identity, call) for call in calls] == [
        canonical_key(identity, call) for call in calls
    ]


CHAT = {"engine": "openai", "server": "hosted", "endpoints": "both"}


@pytest.mark.parametrize(
    ("prefill", "identity", "is_new"),
    [
        ("<search> fox </search> Foxes are red.", CHAT, True),
        ("Final answer:", CHAT, False),
        ("<search> fox </search> Foxes are red.", {**CHAT, "server": "sglang"}, False),
        ("<search> fox </search> Foxes are red.", {"engine": "llamacpp"}, False),
    ],
    ids=["chat server", "label", "continues", "local"],
)
def test_replies_without_transcript_have_new_keys(
    prefill: str, identity: Any, is_new: bool
) -> None:
    call = replace(CALL, prompt=replace(PROMPT, prefill=prefill))
    record = {name: value for name, value in call_json(call).items() if name != "role"}
    record["prompt"].pop("template")
    canonical = json.dumps(
        [identity, record], sort_keys=True, ensure_ascii=False, separators=(",", ":")
    )
    assert (cache_key(identity, call) != hashlib.sha256(canonical.encode()).hexdigest()) is is_new


REPLIES: list[tuple[Call[Any], Any]] = [
    (CALL, Completion("a text", usage=Usage(3, 1, 2, 0.5))),
    (CALL, Completion("", tool_calls=(TOOL_CALL, ToolCall("2", "", "no JSON")))),
    (Choose(PROMPT, ("A", "B")), Choice((-0.1, -2.0), 0.9)), (Rank("query", ("one", "two")), (0.5, 1.5)),
    (CountTokens("some text"), 2), (Search("query", 2), (Passage("p", "Title", "text"),)),
]  # fmt: skip
SHAPES: list[Json] = [
    {},
    [],
    ["a"],
    [0.5],
    [1.0, 2.0, 3.0],
    [None, None],
    "text",
    1.5,
    -1,
    True,
    [[]],
    [{}, {}, {}],
]


def test_passages_at_positions_can_be_more_than_k() -> None:
    call = Search("chunks", 1, positions=(4, 5))
    passages = (Passage.of("One", "text"), Passage.of("Two", "text"))
    assert reply_from_json(call, json.loads(json.dumps(reply_json(passages)))) == passages


@pytest.mark.parametrize(("call", "reply"), REPLIES, ids=lambda each: type(each).__name__)
def test_reply_of_another_kind_is_rejected(call: Call[Any], reply: Any) -> None:
    assert reply_from_json(call, json.loads(json.dumps(reply_json(reply)))) == reply
    wrong = [shape for shape in SHAPES if not (isinstance(call, Search) and shape == [])]
    for shape in [
        *wrong,
        *(reply_json(other) for kind, other in REPLIES if type(kind) is not type(call)),
    ]:
        with pytest.raises(ValueError, match=f"no reply to {type(call).__name__}"):
            reply_from_json(call, shape)


PROMPT_JSON = {"template": "t/x", "messages": [["user", "Who?"]], "prefill": "", "form": "chat"}
SEEN = {"path": [0], "cached": False}
COMPLETION = {"text": "Ann", "finish": "stop", "usage": [3, 0, 1, 0.5], "flags": []}
CALLS: dict[str, dict[str, Any]] = {
    "generate": {**SEEN, "call": "generate", "role": "reader", "prompt": PROMPT_JSON, "reply": COMPLETION},
    "choose": {
        **SEEN, "call": "choose", "role": "reader", "prompt": PROMPT_JSON, "options": ["A", "B"],
        "reply": {"logprobs": [-0.1, float("-inf")], "mass": None, "usage": [3, 0, 1, 0.5, 7], "flags": ["x"]},
    },
    "count_tokens": {**SEEN, "call": "count_tokens", "role": "reader", "characters": 1, "reply": 1},
    "rank": {**SEEN, "call": "rank", "query": "q", "texts": ["a", "b"], "reply": [0.5, 1]},
    "search": {
        **SEEN, "call": "search", "query": "q", "k": 1, "titles": None, "pool": None,
        "reply": [{"id": "p", "title": "T", "text": "Ann."}],
    },
    "triples": {**SEEN, "call": "triples", "passage_id": "p", "reply": [["Ann", "knows", "Bob"]]},
    "neighbours": {**SEEN, "call": "neighbours", "passage_id": "p", "pool": None, "reply": ["p"]},
    "failed": {**SEEN, "call": "rank", "query": "q", "texts": [], "reply": {"error": "EngineError", "message": "no"}},
}  # fmt: skip


def trace(folder: Path, call: Any) -> Path:
    (folder / MANIFEST).write_text("{}")
    question = {
        "id": "q1",
        "text": "Who?",
        "answers": ["Ann"],
        "hops": None,
        "type": "",
        "support": [],
        "passages": [],
    }
    line = {
        "question": question,
        "question_id": "q1",
        "answer": "Ann",
        "error": None,
        "notes": {},
        "calls": [call],
    }
    compressed = zstandard.ZstdCompressor().compress((json.dumps(line) + "\n").encode())
    (folder / TRACE).write_bytes(compressed)
    return folder


@pytest.mark.parametrize(("kind", "call"), CALLS.items())
def test_every_kind_of_call_is_read(tmp_path: Path, kind: str, call: Json) -> None:
    (traced,) = read_trace(trace(tmp_path, call))
    assert traced.calls[0].kind == call["call"]
    assert traced.calls[0].error == ("EngineError: no" if kind == "failed" else None)


@pytest.mark.parametrize(
    ("kind", "key", "value", "message"),
    [
        pytest.param("generate", "call", "sing", "call='sing': no such kind", id="unknown kind"),
        pytest.param(
            "generate",
            "reply",
            None,
            "reply: its content=None is not a valid object",
            id="no reply",
        ),
        pytest.param(
            "generate", "reply", {**COMPLETION, "usage": [3, 0]}, r"reply: usage", id="short usage"
        ),
        pytest.param(
            "generate",
            "reply",
            {**COMPLETION, "usage": [10**250, 0, "x", 0]},
            r"reply: usage",
            id="huge usage",
        ),
        pytest.param("rank", "reply", "ab", "reply: its content='ab' is not", id="rank with text"),
        pytest.param("triples", "reply", [["Ann"]], r"reply: 0\.1 is missing", id="short triple"),
    ],
)
def test_damaged_call_is_rejected(
    tmp_path: Path, kind: str, key: str, value: Any, message: str
) -> None:
    with pytest.raises(DataError, match=message) as refused:
        list(read_trace(trace(tmp_path, {**CALLS[kind], key: value})))
    assert f"{tmp_path / TRACE}:1: " in str(refused.value)


def test_stop_string_is_stored_if_reported() -> None:
    replies = [Completion("a", stopped_by=stop) for stop in ("</search>", "", None)]
    stored = [reply_json(reply) for reply in replies]
    assert [record.get("stopped_by") for record in stored] == ["</search>", "", None]
    assert [reply_from_json(CALL, record) for record in stored] == replies


def test_listed_tokens_are_stored() -> None:
    tokens = (
        GeneratedToken("A", -0.5, 7, (("A", -0.5), ("B", -1.5))),
        GeneratedToken("\ufffd", -100.0),
    )
    reply = Completion("A", tokens=tokens, prompt_ids=(1, 2))
    stored = json.loads(json.dumps(reply_json(reply)))
    assert reply_from_json(replace(CALL, logprobs=2), stored) == reply


def test_calls_without_logprobs_are_stored_as_before() -> None:
    assert "logprobs" not in call_json(CALL)
    assert not {"tokens", "prompt_ids"} & set(reply_json(Completion("A")))
