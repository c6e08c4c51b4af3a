"""Thinking models behind servers of every form: what is asked of them, and what becomes of their replies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kgqa.calls import Choose, Generate
from kgqa.errors import ConfigError
from kgqa.types import Message, Prompt
from tests.engines.asking import write
from tests.engines.misbehaving import Serving, answer, refuse, reply
from tests.engines.openai_calls import MODEL, asked, engine

BUDGET = 100
CALL = Generate(Prompt("test/where", (Message("user", "Where?"),), "Answer:"), 25, stop=("\n",))
THOUGHT = {"completion_tokens_details": {"reasoning_tokens": 15}}
PARTS = [{"type": "thinking", "thinking": [{"type": "text", "text": "In France."}]}, {"type": "text", "text": "Lyon"}]
FORMS = {  # of one and the same reply
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
    spent = {"completion_tokens_details": {"reasoning_tokens": 25}}
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
    (_, first), (_, second) = server.asked[:2]
    assert first["chat_template_kwargs"] == {"enable_thinking": True, "thinking": True, "reasoning_effort": "low"}
    assert [message["role"] for message in first["messages"]] == ["user"]  # behind a prefill it would not think
    assert "no_prefill" in told.flags
    assert second["chat_template_kwargs"] == {"enable_thinking": False}
    assert [message["role"] for message in second["messages"]] == ["user", "assistant"]
    assert not isinstance(chosen, Exception)


def test_an_ordinary_reply_is_what_it_was(serving: Serving) -> None:
    (got,) = asked(serving(lambda talk, body: talk.answer(200, reply(body))), [write("question 1")])
    assert (got.text, got.thought, got.flags, got.usage.reasoning_tokens) == ("re: question 1", "", (), 0)
