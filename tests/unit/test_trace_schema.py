"""Calls of a trace that was edited or damaged: one line with the file's line and the key."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import zstandard

from kgqa.artifacts.trace import TRACE, read_trace
from kgqa.errors import DataError

PROMPT = {"template": "t/x", "messages": [["user", "Who?"]], "prefill": "", "form": "chat"}
SEEN = {"path": [0], "cached": False}
COMPLETION = {"text": "Ann", "finish": "stop", "usage": [3, 0, 1, 0.5], "flags": []}
CALLS: dict[str, dict[str, Any]] = {
    "generate": {**SEEN, "call": "generate", "role": "reader", "prompt": PROMPT, "reply": COMPLETION},
    "choose": {
        **SEEN, "call": "choose", "role": "reader", "prompt": PROMPT, "options": ["A", "B"],
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


def trace(folder: Path, call: Any, **more: Any) -> Path:
    question = {"id": "q1", "text": "Who?", "answers": ["Ann"], "hops": None, "type": "", "support": [], "passages": []}
    line = {"question": question, "question_id": "q1", "answer": "Ann", "error": None, "notes": {}, "calls": [call]}
    compressed = zstandard.ZstdCompressor().compress((json.dumps({**line, **more}) + "\n").encode())
    (folder / TRACE).write_bytes(compressed)
    return folder


@pytest.mark.parametrize("kind", CALLS)
def test_every_kind_is_read(kind: str, tmp_path: Path) -> None:
    (traced,) = read_trace(trace(tmp_path, CALLS[kind]))
    assert traced.calls[0].kind == CALLS[kind]["call"]


@pytest.mark.parametrize(
    ("kind", "key", "value", "said"),
    [
        ("generate", "call", "sing", "call='sing': no such kind"),
        ("generate", "prompt", "Who?", "a call to generate: prompt='Who\\?'"),
        ("generate", "prompt", {**PROMPT, "messages": [["user"]]}, r"prompt\.messages\.0\.1 is missing"),
        ("generate", "role", 7, "role=7 is not a valid string"),
        ("generate", "reply", None, "reply: its content=None is not a valid object"),
        ("generate", "reply", {**COMPLETION, "usage": [3, 0]}, r"reply: usage"),
        ("generate", "reply", {**COMPLETION, "usage": [10**250, 0, "x", 0]}, r"reply: usage"),
        ("generate", "reply", {**COMPLETION, "flags": 5}, r"reply: flags=5"),
        ("choose", "options", ["A"], "2 replies to 1 options"),
        ("choose", "options", None, "options=None"),
        ("rank", "texts", ["a"], "2 replies to 1 texts"),
        ("rank", "reply", "ab", "reply: its content='ab' is not"),
        ("search", "reply", [{"id": "p"}], r"reply: 0\.title is missing"),
        ("triples", "passage_id", None, "passage_id=None"),
        ("triples", "reply", [["Ann"]], r"reply: 0\.1 is missing"),
        ("neighbours", "reply", [1], "reply: 0=1"),
        ("failed", "reply", {"error": "x"}, "reply: message is missing"),
    ],
)
def test_damaged_call(kind: str, key: str, value: Any, said: str, tmp_path: Path) -> None:
    call = copy.deepcopy(CALLS[kind])
    call[key] = value
    with pytest.raises(DataError, match=said) as refused:
        list(read_trace(trace(tmp_path, call)))
    assert f"{tmp_path / TRACE}:1: " in str(refused.value)
