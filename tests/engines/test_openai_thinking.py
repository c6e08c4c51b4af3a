"""Thinking models behind servers of every form: what is asked of them, and what becomes of their replies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kgqa.calls import Choose, Generate
from kgqa.errors import ConfigError
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.identity import run_identity
from kgqa.experiment.session.session import Session
from kgqa.types import Completion, Message, Prompt
from tests.engines.asking import write
from tests.engines.misbehaving import Fault, Serving, answer, refuse, reply, without
from tests.engines.openai_calls import MODEL, asked, engine

BUDGET = 100
CALL = Generate(Prompt("test/where", (Message("user", "Where?"),), "Answer:"), 25, stop=("\n",))
THOUGHT: dict[str, Any] = {"completion_tokens_details": {"reasoning_tokens": 15}}
PARTS = [{"type": "thinking", "thinking": [{"type": "text", "text": "In France."}]}, {"type": "text", "text": "Lyon"}]
FORMS: dict[str, dict[str, Any]] = {  # of one and the same reply
    "deepseek": {"content": "Lyon", "reasoning_content": "In France."},
    "vllm, ollama": {"content": "Lyon", "reasoning": "In France."},
    "openrouter": {"content": "Lyon", "reasoning": "In France.", "reasoning_details": [{"type": "reasoning.text"}]},
    "untouched": {"content": "<think>\nIn France.\n</think>\n\nLyon"},
    "opened in the prompt": {"content": "In France.\n</think>\n\nLyon"},
    "gpt-oss, untouched": {
        "content": "<|channel|>analysis<|message|>In France.<|end|><|start|>assistant<|channel|>final<|message|>Lyon"
    },
    "mistral": {"content": PARTS},
}


def thinking(at: Any, calls: list[Any], setting: int | str = BUDGET, **fields: Any) -> list[Any]:
    return asked(at, calls, model=replace(MODEL, context=30_000, thinking=setting), **fields)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("setting", [BUDGET, "off"])  # whatever it was told, a model may think
def test_the_thought_is_cut_kept_and_counted(serving: Serving, form: str, setting: int | str) -> None:
    (told,) = thinking(serving(answer(FORMS[form], **THOUGHT)), [CALL], setting)
    assert (told.text, told.thought, told.usage.reasoning_tokens) == ("Lyon", "In France.", 15)
    assert told.flags == ("no_prefill",)
    (untold,) = thinking(serving(answer(FORMS[form])), [CALL], setting)
    assert untold.usage.reasoning_tokens == round(25 * len("In France.") / len("In France.Lyon"))
    assert untold.flags == ("no_prefill", "estimated_thought")


@pytest.mark.parametrize("setting", [BUDGET, "off"])
@pytest.mark.parametrize(
    "message",
    [{"content": None}, {"content": "", "reasoning": "In"}, {"content": "<think>In"}, {"content": "In</think>\n"}],
)
def test_a_budget_that_ends_within_the_thought_is_said(
    serving: Serving, message: dict[str, Any], setting: int | str
) -> None:
    spent: dict[str, Any] = {"completion_tokens_details": {"reasoning_tokens": 25}}
    (got,) = thinking(serving(answer(message, "length", **spent)), [CALL], setting)
    assert (got.text, got.finish) == ("", "length")
    assert "thought_out" in got.flags
    assert got.usage.reasoning_tokens == 25


def test_a_thought_without_any_tag_is_no_answer(serving: Serving) -> None:
    """Where the prompt opened the tag and the budget ended before it was closed."""
    (got,) = thinking(serving(answer({"content": "In France there are"}, "length")), [CALL])
    assert (got.text, got.thought) == ("", "In France there are")
    assert "thought_out" in got.flags
    (plain,) = thinking(serving(answer({"content": "In France there are"}, "length")), [CALL], "off")
    assert (plain.text, plain.thought) == ("In France there are", "")


def test_thoughts_counted_beside_the_answer_are_output_too(serving: Serving) -> None:
    """xAI's way: prompt, completion and reasoning make up the total."""
    (got,) = thinking(serving(answer(FORMS["deepseek"], total_tokens=50, **THOUGHT)), [CALL])
    assert (got.usage.output_tokens, got.usage.reasoning_tokens) == (40, 15)


def test_the_budget_is_added_and_stop_strings_wait_for_the_answer(serving: Serving) -> None:
    server = serving(answer({"content": "Answer:Lyon\nQuestion", "reasoning": "In\nFrance."}))
    (got,) = thinking(server, [CALL], "low")
    assert (got.text, got.thought) == ("Lyon", "In\nFrance.")
    body = server.asked[0][1]
    assert (body["max_tokens"], body["reasoning_effort"]) == (25 + 1024, "low")
    assert "stop" not in body


def test_a_number_of_tokens_is_no_effort(serving: Serving) -> None:
    server = serving()
    thinking(server, [CALL])
    assert server.asked[0][1]["max_tokens"] == 125
    assert "reasoning_effort" not in server.asked[0][1]
    thinking(server, [CALL], "off")
    assert (server.asked[1][1]["max_tokens"], server.asked[1][1]["stop"]) == (25, ["\n"])


@pytest.mark.parametrize(
    "message",
    [
        "Unrecognized request argument supplied: reasoning_effort",  # OpenAI
        'think value "medium" is not supported for this model',  # Ollama, issue 12561
        "Thinking level MEDIUM is not supported for this model.",  # Gemini
    ],
)
def test_a_server_that_knows_no_effort_is_asked_without_and_the_reply_flagged(serving: Serving, message: str) -> None:
    def fault(conversation: Any, body: dict[str, Any]) -> None:
        known = "reasoning_effort" in body
        (refuse(400, message) if known else answer({"content": "Lyon"}))(conversation, body)

    (got,) = thinking(serving(always=fault), [CALL], "medium")
    assert (got.text, "no_effort" in got.flags) == ("Lyon", True)


def test_a_choice_is_read_in_words_behind_the_thought(serving: Serving) -> None:
    server = serving(answer({"content": "B", "reasoning": "A is wrong."}, **THOUGHT))
    (got,) = thinking(server, [Choose(CALL.prompt, ("A", "B"))], "low")
    assert got.logprobs[1] > got.logprobs[0]
    assert (got.thought, got.usage.reasoning_tokens) == ("A is wrong.", 15)
    assert "parsed_choice" in got.flags
    body = server.asked[0][1]
    assert (body["max_tokens"], "logprobs" in body) == (8 + 1024, False)


def test_a_choice_that_is_thought_out_is_none(serving: Serving) -> None:
    server = serving(answer({"content": None, "reasoning": "A or B?"}, "length", **THOUGHT))
    (got,) = thinking(server, [Choose(CALL.prompt, ("A", "B"))])
    assert {"thought_out", "no_choice"} <= set(got.flags)
    assert got.logprobs[0] == got.logprobs[1]


def test_probabilities_of_a_model_that_thinks_cannot_be_asked_for() -> None:
    with pytest.raises(ConfigError, match=r"^engine\.choose=logprobs: [^\n]+$"):
        engine(choose="logprobs", model=replace(MODEL, thinking=9))


def test_a_plain_prompt_leaves_no_room_to_think(serving: Serving) -> None:
    server = serving()
    plain = Generate(Prompt("test/plain", (Message("user", "one two"),), form="completion"), 5)
    (got,) = thinking(server, [plain])
    assert "no_thinking" in got.flags
    assert server.asked[0][1]["max_tokens"] == 5


def test_sglang_is_told_by_its_template_and_chooses_without_thinking(serving: Serving) -> None:
    server = serving(answer(FORMS["deepseek"]))
    told, chosen = thinking(server, [CALL, Choose(CALL.prompt, ("A", "B"))], "low", server="sglang", concurrency=1)
    bodies = [body for _, body in server.asked[:2]]  # sent side by side
    first, second = sorted(bodies, key=lambda body: not body["chat_template_kwargs"]["enable_thinking"])
    assert first["chat_template_kwargs"] == {"enable_thinking": True, "thinking": True, "reasoning_effort": "low"}
    assert [message["role"] for message in first["messages"]] == ["user"]  # behind a prefill it would not think
    assert "no_prefill" in told.flags
    assert second["chat_template_kwargs"] == {"enable_thinking": False}
    assert [message["role"] for message in second["messages"]] == ["user", "assistant"]
    assert not isinstance(chosen, Exception)


# Keys of a server's own


def test_further_keys_go_with_every_request_and_into_the_identity(serving: Serving) -> None:
    extra = {"service_tier": "flex", "provider": {"order": ["deepinfra"], "allow_fallbacks": False}}
    server = serving()
    replies = asked(server, [write("one"), Choose(CALL.prompt, ("A", "B"))], extra=extra)
    assert all(not isinstance(got, Exception) for got in replies)
    assert all(extra.items() <= body.items() for _, body in server.asked)
    assert engine(extra=extra).identity()["extra"] == extra
    assert "extra" not in engine().identity()
    assert "extra" not in engine(extra={}).identity()


@pytest.mark.parametrize(
    ("fields", "extra"),
    [
        ({}, {"temperature": 0.6}),
        ({}, {"stream": True}),
        ({"model": replace(MODEL, thinking="low", context=9000)}, {"reasoning_effort": "high"}),
        ({"server": "vllm"}, {"top_k": 20}),
        ({"server": "sglang"}, {"chat_template_kwargs": {}}),
        ({}, {"api_key": "sk-123"}),
    ],
)
def test_a_key_that_is_ours_is_refused_in_one_line(fields: dict[str, Any], extra: dict[str, Any]) -> None:
    (key,) = extra
    with pytest.raises(ConfigError, match=rf"^engine\.extra\.{key}: [^\n]+$") as refused:
        engine(extra=extra, **fields)
    assert "sk-123" not in str(refused.value)


def test_what_json_cannot_say_is_refused_before_a_server_reads_it() -> None:
    with pytest.raises(ConfigError, match=r"engine\.extra: holds nan or inf"):
        engine(extra={"min_p": float("nan")})


def test_a_run_has_further_keys_in_its_identity_only_where_it_sends_some() -> None:
    def identity(*words: str) -> Any:
        with Session(Experiment.of(["method=no_context", "model=gpt_4o_mini", "engine=openai", *words])) as session:
            return run_identity(session)["engine"]

    assert identity("engine.extra={service_tier: flex}")["extra"] == {"service_tier": "flex"}
    assert "extra" not in identity()
    assert identity("engine.extra={}") == identity()


def test_a_key_the_server_refuses_is_told_in_its_words(serving: Serving) -> None:
    (got,) = asked(serving(always=without("service_tier")), [write("one")], extra={"service_tier": "flex"})
    assert "Unsupported parameter: 'service_tier'" in str(got)


# Recipes of docs/ENGINES.md at servers that answer as these do, by their documentation


def ollama(conversation: Any, body: dict[str, Any]) -> None:
    """By `openai/openai.go`: it thinks unless reasoning_effort is "none"; keys that it does not know are skipped."""
    thinks = {} if body.get("reasoning_effort") == "none" else {"reasoning": "In France."}
    message = {"role": "assistant", "content": "Lyon", **thinks}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    counts = {"prompt_tokens": 9, "completion_tokens": 14, "total_tokens": 23}
    known = {"id": "chatcmpl-1", "object": "chat.completion", "system_fingerprint": "fp_ollama", "model": body["model"]}
    conversation.answer(200, {**known, "choices": [choice], "usage": counts})


def openrouter(conversation: Any, body: dict[str, Any]) -> None:
    """Either an effort or a number of tokens; thoughts come back as text and as details, and are counted."""
    if "reasoning_effort" in body and "max_tokens" in body.get("reasoning", {}):
        refuse(400, "Only one of reasoning.effort and reasoning.max_tokens can be specified")(conversation, body)
        return
    message: dict[str, Any] = {"content": "Lyon", "refusal": None, "reasoning": "In France.", "reasoning_details": []}
    details: dict[str, Any] = {"completion_tokens_details": {"reasoning_tokens": 9}, "cost": 0.0001, "total_tokens": 35}
    answer(message, **details)(conversation, body)


@pytest.mark.parametrize(
    ("server", "setting", "extra", "thought"),
    [
        (ollama, 2000, None, "In France."),
        (ollama, "off", {"reasoning_effort": "none"}, ""),
        (openrouter, 2000, {"reasoning": {"max_tokens": 2000}, "provider": {"order": ["deepinfra"]}}, "In France."),
        (openrouter, "low", {"provider": {"require_parameters": True}}, "In France."),
    ],
)
def test_a_recipe_works(serving: Serving, server: Fault, setting: int | str, extra: Any, thought: str) -> None:
    (got,) = thinking(serving(always=server), [CALL], setting, extra=extra)
    assert isinstance(got, Completion), got
    assert (got.text, got.thought) == ("Lyon", thought)
    assert bool(got.usage.reasoning_tokens) == bool(thought)


def test_flex_waits_where_there_is_no_room(serving: Serving) -> None:
    """OpenAI's flex tier: "resource unavailable" is 429, costs nothing and is tried again."""
    busy = refuse(429, "Resource unavailable", code="resource_unavailable")
    server = serving(busy, busy)
    (got,) = asked(server, [write("question 1")], extra={"service_tier": "flex"}, timeout=900.0)
    assert got.text == "re: question 1"
    assert [body["service_tier"] for _, body in server.asked] == ["flex"] * 3


def test_an_ordinary_reply_is_what_it_was(serving: Serving) -> None:
    (got,) = asked(serving(lambda talk, body: talk.answer(200, reply(body))), [write("question 1")])
    assert (got.text, got.thought, got.flags, got.usage.reasoning_tokens) == ("re: question 1", "", (), 0)
