"""Which key of a request a server's error is about, by the wordings of servers."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="engine openai needs aiohttp")

from kgqa.engines.openai.requests import find_rejected_key
from kgqa.engines.openai.transport import Refused

BODY = {
    "model": "m",
    "messages": [],
    "max_tokens": 5,
    "temperature": 0.0,
    "top_p": 1.0,
    "seed": 1,
    "stop": ["x"],
}
WORDINGS: dict[str, tuple[str, str]] = {
    "quoted": (
        "Unsupported parameter: 'temperature' is not supported with this model.",
        "temperature",
    ),
    "value": (
        "Unsupported value: 'temperature' does not support 0 with this model.",
        "temperature",
    ),
    "bare": ("Unknown parameter: seed", "seed"),
    "first word": ("seed is not supported by this model", "seed"),
    "list": ("Unrecognized request arguments supplied: seed, stop", "seed"),
    "path": ("body.stop: Extra inputs are not permitted", "stop"),
    "backticks": ("`top_p` is not allowed together with `temperature`", "top_p"),
    "key of every request": ("'messages' has an unknown role", ""),
    "no key": ("Unsupported prompt.", ""),
    "other reason": ("temperature and seed are fine, but the prompt is empty", ""),
}


@pytest.mark.parametrize(("message", "key"), WORDINGS.values(), ids=WORDINGS)
def test_key_is_in_the_message(message: str, key: str) -> None:
    assert find_rejected_key(Refused(400, {"message": message}), BODY) == key


FURTHER: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "param": ({"param": "stop[0]", "message": "seed is unsupported"}, {}, "stop"),
    "tools": ({"message": "Unsupported parameter: tools"}, {"tools": []}, "tools"),
    "schema by its topic": (
        {"message": "Invalid grammar"},
        {"response_format": {}},
        "response_format",
    ),
    "effort by its topic": (
        {"message": "Thinking is not supported"},
        {"reasoning_effort": "low"},
        "reasoning_effort",
    ),
}


@pytest.mark.parametrize(("error", "keys", "key"), FURTHER.values(), ids=FURTHER)
def test_key_comes_from_other_fields(error: dict[str, Any], keys: dict[str, Any], key: str) -> None:
    assert find_rejected_key(Refused(400, error), {**BODY, **keys}) == key
