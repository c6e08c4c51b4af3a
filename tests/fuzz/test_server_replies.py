"""Any value in the reply of a server: a reply that the cache can store, or an error of this call only."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgqa.artifacts.call_schema import reply_from_json, reply_json
from kgqa.calls import Generate
from kgqa.errors import EngineError
from kgqa.retrieval.server import read_vectors
from kgqa.types import Json, Message, Prompt
from kgqa.util.jsonio import decode_stored, encode_json
from tests.fuzz.test_files import FUZZ

pytest.importorskip("aiohttp", reason="engine openai needs aiohttp")

from kgqa.engines.openai.responses import finish_reply, read_response

# what a server can write in the place of any value
HOSTILE: tuple[Any, ...] = (
    None, True, -1, 1.5, 10**400, -(10**400), math.nan, math.inf, -math.inf, "", "x", "\ud800", "\0", "x" * 5000,
    [], {}, [None], [[[]]], {"a": 1}, [1, "x"], "NaN", {"text": "x"}, [{"type": "text", "text": 5}],
)  # fmt: skip
TOKEN = {"id": 5, "token": "A", "logprob": -0.5, "top_logprobs": [{"token": "B", "logprob": -2.0}]}
CALLED = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q": 1}'}}
CHAT = {
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "stop_reason": "x",
            "token_ids": [5],
            "message": {
                "role": "assistant",
                "content": "Ann",
                "reasoning_content": "Hm.",
                "tool_calls": [CALLED],
            },
            "logprobs": {"content": [TOKEN]},
        }
    ],
    "usage": {
        "prompt_tokens": 9,
        "completion_tokens": 3,
        "total_tokens": 12,
        "completion_tokens_details": {"reasoning_tokens": 1},
        "prompt_tokens_details": {"cached_tokens": 2},
    },
    "prompt_token_ids": [1, 2],
    "__verbose": {"stopping_word": "x"},
}
PARTS = copy.deepcopy(CHAT)
PARTS["choices"][0]["message"]["content"] = [  # type: ignore[index]
    {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
    {"type": "text", "text": "Ann"},
]
PLAIN = {
    "choices": [
        {
            "text": "Ann",
            "finish_reason": "length",
            "logprobs": {
                "tokens": ["Ann"],
                "token_logprobs": [-0.1],
                "top_logprobs": [{"Ann": -0.1, "Bob": -3.0}],
            },
        }
    ],
    "usage": {"prompt_tokens": 9, "completion_tokens": 1},
}
GOOD = {"chat": CHAT, "parts": PARTS, "completion": PLAIN}
REQUEST = {"messages": [{"role": "user", "content": "Who?"}], "logprobs": True, "stop": ["x"]}
CALL = Generate(Prompt("x", (Message("user", "Who?"),)), 5, stop=("x",), logprobs=1)


def list_places(value: Json) -> Iterator[tuple[Any, Any]]:
    """Yield each container of a value with each of its keys."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(pairs):
        yield value, key
        if isinstance(inner, dict | list):
            yield from list_places(inner)


def spoil(value: Json, changes: list[tuple[float, Any]]) -> Json:
    """Return a copy with hostile values in some places."""
    changed = copy.deepcopy(value)
    for share, hostile in changes:
        places = list(list_places(changed))
        if places:
            container, key = places[int(share * len(places))]
            container[key] = copy.deepcopy(hostile)
    return changed


CHANGES = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.sampled_from(HOSTILE)), min_size=1, max_size=3
)


@pytest.mark.parametrize("name", GOOD)
def test_good_reply_is_read(name: str) -> None:
    reply = finish_reply(read_response(GOOD[name], REQUEST), CALL, REQUEST, thinks=False)
    assert reply.text == "Ann"


@pytest.mark.parametrize("name", GOOD)
@FUZZ
@given(changes=CHANGES)
def test_any_reply_can_be_stored_or_fails(name: str, changes: list[tuple[float, Any]]) -> None:
    answer = spoil(GOOD[name], changes)
    try:
        response = read_response(answer, REQUEST)
        if response.invalid:
            return
        reply = finish_reply(response, CALL, REQUEST, thinks=False)
    except (ValueError, EngineError):
        return
    stored = decode_stored(encode_json(reply_json(reply)))
    assert json.dumps(reply_json(reply_from_json(CALL, stored))) == json.dumps(reply_json(reply))


VECTORS = {
    "model": "m",
    "data": [{"index": 0, "embedding": [0.5, 1.0]}, {"index": 1, "embedding": "AACAPwAAgD8="}],
}


@FUZZ
@given(changes=CHANGES)
def test_any_vectors_are_numbers_or_fail(changes: list[tuple[float, Any]]) -> None:
    try:
        vectors = read_vectors(spoil(VECTORS, changes), 2)
    except ValueError:
        return
    assert all(vector.ndim == 1 and vector.dtype == np.float32 for vector in vectors)
