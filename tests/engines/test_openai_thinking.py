"""Reasoning models behind servers of every form: what is sent to them, and what becomes of their replies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kgqa.calls import Choose, Generate
from kgqa.errors import ConfigError
from kgqa.identity.component import identity_of
from kgqa.types import Message, Prompt
from tests.engines.asking import write
from tests.engines.misbehaving import Serving, answer, refuse, without
from tests.engines.openai_calls import MODEL, asked, engine

BUDGET = 100
CALL = Generate(Prompt("test/where", (Message("user", "Where?"),), "Answer:"), 25, stop=("\n",))
PICK = Choose(CALL.prompt, ("A", "B"))
THOUGHT: dict[str, Any] = {"completion_tokens_details": {"reasoning_tokens": 15}}
PARTS = [
    {"type": "thinking", "thinking": [{"type": "text", "text": "In France."}]},
    {"type": "text", "text": "Lyon"},
]
# of one and the same reply
FORMS: dict[str, dict[str, Any]] = {
    "deepseek": {"content": "Lyon", "reasoning_content": "In France."},
    "vllm, ollama, openrouter": {
        "content": "Lyon",
        "reasoning": "In France.",
        "reasoning_details": [],
    },
    "untouched": {"content": "<think>\nIn France.\n</think>\n\nLyon"},
    "opened in the prompt": {"content": "In France.\n</think>\n\nLyon"},
    "gpt-oss": {
        "content": "<|channel|>analysis<|message|>In France.<|end|><|start|>x<|channel|>final<|message|>Lyon"
    },
    "mistral": {"content": PARTS},
}


def thinking(at: Any, calls: list[Any], setting: int | str = BUDGET, **fields: Any) -> list[Any]:
    return asked(at, calls, model=replace(MODEL, context=30_000, thinking=setting), **fields)


@pytest.mark.parametrize(  # whatever the setting is, a model may think
    ("form", "setting"),
    [*((form, BUDGET) for form in FORMS), ("deepseek", "off"), ("untouched", "off")],
)
def test_reasoning_is_separated_and_counted(
    serving: Serving, form: str, setting: int | str
) -> None:
    (counted,) = thinking(serving(answer(FORMS[form], **THOUGHT)), [CALL], setting)
    assert (counted.text, counted.thought, counted.usage.reasoning_tokens) == (
        "Lyon",
        "In France.",
        15,
    )
    assert counted.flags == ("no_prefill",)
    (estimated,) = thinking(serving(answer(FORMS[form])), [CALL], setting)
    assert estimated.usage.reasoning_tokens == round(25 * len("In France.") / len("In France.Lyon"))
    assert estimated.flags == ("no_prefill", "estimated_thought")
    (added,) = thinking(
        serving(answer(FORMS[form], total_tokens=50, **THOUGHT)), [CALL]
    )  # xAI counts it in addition
    assert (added.usage.output_tokens, added.usage.reasoning_tokens) == (40, 15)
    if form in ("deepseek", "untouched", "mistral"):
        (complete,) = thinking(
            serving(answer(FORMS[form], **THOUGHT)), [replace(CALL, thoughts="keep", stop=())]
        )
        assert (complete.text, complete.thought) == ("<think>\nIn France.\n</think>\n\nLyon", "")


@pytest.mark.parametrize("setting", [BUDGET, "off"])
@pytest.mark.parametrize(
    "message",
    [
        {"content": None},
        {"content": "", "reasoning": "In"},
        {"content": "<think>In"},
        {"content": "In</think>\n"},
    ],
)
def test_budget_that_ends_in_reasoning(
    serving: Serving, message: dict[str, Any], setting: int | str
) -> None:
    details: dict[str, Any] = {"completion_tokens_details": {"reasoning_tokens": 25}}
    (got,) = thinking(serving(answer(message, "length", **details)), [CALL], setting)
    assert (got.text, got.finish, got.usage.reasoning_tokens) == ("", "length", 25)
    assert "thought_out" in got.flags
    # the prompt opened a tag that is not closed
    cut = answer({"content": "In France there are"}, "length")
    (got,) = thinking(serving(cut), [CALL])
    assert (got.text, got.thought, "thought_out" in got.flags) == ("", "In France there are", True)
    (plain,) = thinking(serving(cut), [CALL], "off")
    assert (plain.text, plain.thought) == ("In France there are", "")


@pytest.mark.parametrize(
    ("setting", "max_tokens", "effort", "stop"),
    [("low", 1049, "low", None), (BUDGET, 125, None, None), ("off", 25, None, ["\n"])],
    ids=["effort", "budget", "off"],
)
def test_request(
    serving: Serving, setting: Any, max_tokens: int, effort: str | None, stop: list[str] | None
) -> None:
    server = serving(answer({"content": "Answer:Lyon\nQuestion", "reasoning": "In\nFrance."}))
    (got,) = thinking(server, [CALL], setting)
    assert (got.text, got.thought) == ("Lyon", "In\nFrance.")
    body = server.asked[0][1]
    assert [body.get(key) for key in ("max_tokens", "reasoning_effort", "stop")] == [
        max_tokens,
        effort,
        stop,
    ]


OPENAI = "Unrecognized request argument supplied: reasoning_effort"
OLLAMA = 'think value "medium" is not supported for this model'  # issue 12561
GEMINI = "Thinking level MEDIUM is not supported for this model."


@pytest.mark.parametrize("message", [OPENAI, OLLAMA, GEMINI])
def test_rejected_effort(serving: Serving, message: str) -> None:
    (got,) = thinking(serving(always=without("reasoning_effort", message)), [CALL], "medium")
    assert "no_effort" in got.flags


def test_choice_is_read_behind_reasoning(serving: Serving) -> None:
    server = serving(answer({"content": "B", "reasoning": "A is wrong."}, **THOUGHT))
    (got,) = thinking(server, [PICK], "low")
    assert got.logprobs[1] > got.logprobs[0]
    assert (got.thought, got.usage.reasoning_tokens, "parsed_choice" in got.flags) == (
        "A is wrong.",
        15,
        True,
    )
    body = server.asked[0][1]
    assert (body["max_tokens"], "logprobs" in body) == (8 + 1024, False)
    (got,) = thinking(
        serving(answer({"content": None, "reasoning": "A or B?"}, "length", **THOUGHT)), [PICK]
    )
    assert {"thought_out", "no_choice"} <= set(got.flags)
    assert got.logprobs[0] == got.logprobs[1]
    plain = Generate(
        Prompt("test/plain", (Message("user", "one two"),), form="completion"), 5
    )  # does not reason
    (got,) = thinking(server, [plain])
    assert ("no_thinking" in got.flags, server.asked[-1][1]["max_tokens"]) == (True, 5)


def test_sglang_template_settings(serving: Serving) -> None:
    server = serving(answer(FORMS["deepseek"]))
    replied, choice = thinking(server, [CALL, PICK], "low", server="sglang", concurrency=1)
    # in any order, and the choice can take two
    bodies = [body for _, body in server.asked]
    *_, second, first = sorted(
        bodies, key=lambda body: body["chat_template_kwargs"]["enable_thinking"]
    )
    assert first["chat_template_kwargs"] == {
        "enable_thinking": True,
        "thinking": True,
        "reasoning_effort": "low",
    }
    # behind a prefill it would not reason
    assert [message["role"] for message in first["messages"]] == ["user"]
    assert "no_prefill" in replied.flags
    assert second["chat_template_kwargs"] == {"enable_thinking": False}
    assert [message["role"] for message in second["messages"]] == ["user", "assistant"]
    assert not isinstance(choice, Exception)


# engine.extra_body


def test_extra_body_is_sent_and_in_the_identity(serving: Serving) -> None:
    extra = {"service_tier": "flex", "provider": {"order": ["deepinfra"], "allow_fallbacks": False}}
    # OpenAI's flex tier has no room
    busy = refuse(429, "Resource unavailable", code="resource_unavailable")
    server = serving(busy, busy)
    replies = asked(server, [write("one"), PICK], extra_body=extra)
    assert all(not isinstance(got, Exception) for got in replies)
    assert all(extra.items() <= body.items() for _, body in server.asked)
    assert identity_of(engine(extra_body=extra))["extra_body"] == extra
    assert identity_of(engine())["extra_body"] is None
    not_secret = {"prompt_cache_key": "mine", "allowed_token_ids": [1]}
    assert identity_of(engine(extra_body=not_secret))["extra_body"] == not_secret
    with pytest.raises(ConfigError, match=r"engine\.extra_body: contains nan or inf"):
        engine(extra_body={"min_p": float("nan")})
    (got,) = asked(
        serving(always=without("service_tier")), [write("one")], extra_body={"service_tier": "flex"}
    )
    assert "Unsupported parameter: 'service_tier'" in str(got)


@pytest.mark.parametrize(
    ("fields", "extra"),
    [
        ({}, {"temperature": 0.6}), ({}, {"stream": True}),
        ({"model": replace(MODEL, thinking="low", context=9000)}, {"reasoning_effort": "high"}),
        ({"server": "vllm"}, {"top_k": 20}), ({"server": "sglang"}, {"chat_template_kwargs": {}}),
        ({}, {"api_key": "sk-123"}), ({}, {"provider": [{"name": "x", "api-key": "sk-123"}]}),
        ({}, {"headers": {"Authorization": "sk-123"}}),
    ],
)  # fmt: skip
def test_reserved_key(fields: dict[str, Any], extra: dict[str, Any]) -> None:
    (key,) = extra
    with pytest.raises(
        ConfigError, match=rf"^engine\.extra_body\.{key}[\w.-]*: [^\n]+$"
    ) as refused:
        engine(extra_body=extra, **fields)
    assert "sk-123" not in str(refused.value)
