"""Cache keys hold what can change a reply, and nothing else."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from kgqa.artifacts.call_schema import call_json, format_reply, reply_from_json, reply_json
from kgqa.cache.key import cache_key
from kgqa.calls import Call, Choose, CountTokens, Generate, Neighbours, Rank, Search
from kgqa.types import Choice, Completion, Message, Passage, Prompt, Usage

PROMPT = Prompt("trace/select", (Message("system", "s"), Message("user", "u")), prefill="p")
CALL = Generate(PROMPT, max_tokens=10, stop=("\n",), temperature=0.0, top_p=1.0, seed=None, role="reader")


@pytest.mark.parametrize(
    "changed",
    [
        replace(CALL, max_tokens=11),
        replace(CALL, stop=()),
        replace(CALL, temperature=0.5),
        replace(CALL, top_p=0.9),
        replace(CALL, seed=1),
        replace(CALL, prompt=replace(PROMPT, prefill="")),
        replace(CALL, prompt=replace(PROMPT, form="completion")),
        replace(CALL, prompt=replace(PROMPT, messages=(Message("user", "s"), Message("user", "u")))),
        replace(CALL, prompt=replace(PROMPT, messages=(Message("system", "su"), Message("user", "")))),
        Choose(PROMPT, ("A", "B")),
    ],
)
def test_key_changes_with_the_call(changed: Call[object]) -> None:
    assert cache_key({"engine": "e"}, changed) != cache_key({"engine": "e"}, CALL)


def test_key_changes_with_the_engine() -> None:
    assert cache_key({"engine": "e", "dtype": "bfloat16"}, CALL) != cache_key({"engine": "e", "dtype": "float32"}, CALL)


def test_key_ignores_role_and_template() -> None:
    other = replace(CALL, role="judge", prompt=replace(PROMPT, name="judge/verdict"))
    assert cache_key({}, other) == cache_key({}, CALL)


@pytest.mark.parametrize(
    ("call", "reply"),
    [
        (CALL, Completion("text\n", "length", Usage(3, 1, 2, 0.5))),
        (Choose(PROMPT, ("A", "B")), Choice((-0.1, -2.5), 0.9, Usage(3, 0, 1, 0.25))),
        (Rank("q", ("a", "b")), (0.5, -1.0)),
        (CountTokens("a b"), 2),
        (Search("q", 1), (Passage.of("title", "text"),)),
    ],
)
def test_reply_round_trip(call: Call[object], reply: object) -> None:
    assert reply_from_json(call, reply_json(reply)) == reply


def test_neighbors_are_traced_by_ids() -> None:
    pool = tuple(Passage.of(f"T{number}", "text") for number in range(100))
    call = Neighbours(pool[0], pool)
    assert len(str(call_json(call))) < 200
    assert call_json(call) != call_json(Neighbours(pool[0], pool[:99]))
    assert format_reply(call, pool[1:3]) == [pool[1].id, pool[2].id]
    assert format_reply(Search("q", 2), pool[1:2]) == reply_json(pool[1:2])


def test_key_is_the_hash_of_canonical_json() -> None:
    """As keys were made before there was a quicker way, so that every reply kept then is found."""
    text = 'Zürich "quoted" \\ \n\x00\x7f  🌲 \ud800'
    prompts = [PROMPT, Prompt("few_shot/answer", (Message("user", text),), prefill=text, form="completion")]
    settings: list[tuple[float, float, int | None, str | None]] = [(0.0, 1.0, None, None), (0, 1, 7, '{"type": "x"}')]
    calls: list[Call[Any]] = [
        Generate(prompt, 10, stop, temperature, top_p, seed, schema)
        for prompt in prompts
        for stop in ((), ("\n", text))
        for temperature, top_p, seed, schema in settings
    ]
    calls += [Choose(prompt, options) for prompt in prompts for options in (("A", "B"), (text,), ())]
    calls += [CountTokens(text), Rank(text, (text, "b")), Search(text, 3), Search("q", 1, titles=(text,), pool=())]
    identity = {"engine": "e", "b": {"z": 1, "a": [text, 1e-7]}}
    for call in calls:
        written = call_json(call)
        for left_out in ("role", "scorer"):
            written.pop(left_out, None)
        if "prompt" in written:
            written["prompt"].pop("template")
        canonical = json.dumps([identity, written], sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        expected = hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()
        assert cache_key(identity, call) == expected, call
