"""Thoughts: their cut from replies, and what chat templates and configurations make of `model.thinking`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.call_schema import reply_from_json, reply_json
from kgqa.calls import Choose, Generate
from kgqa.engines.chat import ChatTemplate
from kgqa.engines.scripted import Scripted
from kgqa.engines.thinking import BUDGETS, Thinking, join_thought, leading, split_thought, thinking_call
from kgqa.errors import ConfigError
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.identity import run_identity
from kgqa.experiment.session.session import Session
from kgqa.types import Completion, Message, Prompt, Usage

CHATML = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
# How templates end: Qwen3's, DeepSeek-R1's and Qwen3-Thinking's, gpt-oss's
HYBRID = CHATML + "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
ALWAYS = CHATML + r"{{ '<think>\n' }}"
HARMONY = "{% if reasoning_effort %}Reasoning: {{ reasoning_effort }}{% endif %}<|start|>assistant"
CHANNELS = "<|channel|>analysis<|message|>It is in France.<|end|><|start|>assistant<|channel|>final<|message|>Lyon"
QUESTION = Prompt("test/thinking", (Message("user", "Where?"),), "Answer:")
CALL = Generate(QUESTION, max_tokens=25, stop=("\n",), schema="{}")


def said(text: str, output: int = 10, reasoning: int = 0, finish: Any = "stop") -> Completion:
    return Completion(text, finish, Usage(5, 0, output, 0.1, reasoning))


@pytest.mark.parametrize(
    ("text", "answer", "thought"),
    [
        ("<think>\nIt is in France.\n</think>\n\nLyon", "Lyon", "It is in France."),
        ("It is in France.\n</think>\n\nLyon", "Lyon", "It is in France."),  # the prompt opened it
        ("\n<think>A</think><think>B</think>Lyon", "Lyon", "A\nB"),
        ("Ly<think>A</think>on", "Lyon", "A"),
        ("<think>\n\n</think>\n\nLyon", "Lyon", ""),
        (CHANNELS, "Lyon", "It is in France."),
        ("analysisIt is in France.assistantfinalLyon", "Lyon", "It is in France."),  # special tokens left out
        ("<|start|>assistant<|channel|>final<|message|>Lyon<|return|>", "Lyon", ""),
    ],
)
def test_a_thought_is_cut_from_the_answer_and_kept(text: str, answer: str, thought: str) -> None:
    reply = split_thought(said(text))
    assert (reply.text, reply.thought) == (answer, thought)
    assert "thought_out" not in reply.flags


@pytest.mark.parametrize(
    "text", ["<think>It is in", "<think>It is in France.</think>\n", "<|channel|>analysis<|message|>It is in"]
)
def test_a_reply_that_ends_within_its_thought_says_so(text: str) -> None:
    reply = split_thought(said(text, finish="length"))
    assert reply.text == ""
    assert "thought_out" in reply.flags
    assert reply.thought.startswith("It is in")


@pytest.mark.parametrize("text", ["Lyon", " analysis of Lyon", "", "a < b > c", "\nLyon "])
def test_a_reply_without_a_thought_stays_as_it_is(text: str) -> None:
    reply = said(text)
    assert split_thought(reply) is reply


def test_tokens_that_nobody_counts_are_estimated_and_flagged() -> None:
    reply = split_thought(said("<think>12345678</think>12", output=20))
    assert (reply.usage.reasoning_tokens, reply.flags) == (16, ("estimated_thought",))
    assert split_thought(said("Lyon", reasoning=7), "told apart").flags == ()


def test_tokens_of_thought_and_no_answer_are_no_silent_empty_answer() -> None:
    assert split_thought(said("", output=25, reasoning=25, finish="length")).flags == ("thought_out",)


def test_a_thought_survives_the_cache() -> None:
    reply = split_thought(said("Lyon", output=30, reasoning=7), "It is in France.")
    assert reply_from_json(CALL, reply_json(reply)) == reply
    assert "thought" not in reply_json(said("Lyon"))
    assert len(reply_json(said("Lyon"))["usage"]) == 4  # as traces and caches have always had it


def test_two_steps_make_one_reply() -> None:
    reply = join_thought(said("It is in", output=8, finish="length"), said("Lyon", output=2))
    assert (reply.text, reply.thought, reply.finish) == ("Lyon", "It is in", "stop")
    assert (reply.usage.prompt_tokens, reply.usage.output_tokens, reply.usage.reasoning_tokens) == (5, 10, 8)
    assert reply.flags == ("thought_out",)


# Templates


def template(source: str, setting: int | str) -> ChatTemplate:
    return ChatTemplate(source, "", "", completion_bos=False, thinking=Thinking.of(setting))


@pytest.mark.parametrize("source", [HYBRID, ALWAYS, CHATML])
def test_a_turn_ends_where_the_thought_begins_and_the_prefill_comes_behind_it(source: str) -> None:
    text = template(source, 100).render(CALL)
    assert text == "<user>Where?<assistant><think>\n"
    assert leading(text, "France.\n", CALL) == text + "France.\n</think>\n\nAnswer:"
    thinking = thinking_call(CALL, 100, text)
    assert (thinking.max_tokens, thinking.stop, thinking.schema) == (100, ("</think>",), None)


def test_a_model_with_channels_thinks_in_one_and_answers_in_the_other() -> None:
    text = template(HARMONY, "low").render(CALL)
    assert text == "Reasoning: low<|start|>assistant<|channel|>analysis<|message|>"
    begun = text + "France.<|end|><|start|>assistant<|channel|>final<|message|>Answer:"
    assert leading(text, "France.", CALL) == begun
    assert thinking_call(CALL, 9, text).stop == ("<|end|>",)


def test_a_template_that_always_opens_a_thought_has_it_closed_where_thinking_is_off() -> None:
    assert template(ALWAYS, "off").render(CALL) == "<user>Where?<assistant><think>\n\n</think>\n\nAnswer:"


@pytest.mark.parametrize("source", [HYBRID, ALWAYS])
def test_a_choice_is_made_behind_a_closed_thought(source: str) -> None:
    text = template(source, "high").render(Choose(QUESTION, ("A", "B")))
    assert text == "<user>Where?<assistant><think>\n\n</think>\n\nAnswer:"
    assert template(source, "high").flags(Choose(QUESTION, ("A", "B"))) == ()


def test_a_plain_prompt_is_answered_without_a_thought_and_says_so() -> None:
    plain = Generate(Prompt("test/plain", (Message("user", "Q:"),), form="completion"), 5)
    assert template(HYBRID, 100).render(plain) == "Q:"
    assert template(HYBRID, 100).flags(plain) == ("no_thinking",)
    untrained = ChatTemplate(None, "", "", completion_bos=False, thinking=Thinking.of(100))
    assert untrained.flags(CALL) == ("no_template", "no_thinking")


# Configurations


@pytest.mark.parametrize(("word", "budget"), BUDGETS.items())
def test_a_word_stands_for_a_budget(word: str, budget: int) -> None:
    assert Thinking.of(word) == Thinking(budget, word)


@pytest.mark.parametrize("value", ["max", "-1", "true", "1.5", "null"])
def test_another_word_is_refused_in_one_line(value: str) -> None:
    with pytest.raises(ConfigError, match=r"^model\.thinking=[^\n]+$"):
        Session(Experiment.of(["method=no_context", "engine=scripted", f"model.thinking={value}"])).engines("reader")


def test_a_budget_that_fills_the_context_is_refused() -> None:
    words = ["method=no_context", "engine=llamacpp", "model.thinking=medium"]
    with pytest.raises(ConfigError, match=r"model\.thinking=medium: 8,192 tokens .* context of 8,192"):
        Session(Experiment.of(words)).engines("reader")


def test_thinking_is_part_of_a_runs_identity_only_where_it_is_on(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)

    def identity(*words: str) -> Any:
        with Session(Experiment.of(["method=no_context", "dataset=demo", *words])) as session:
            return run_identity(session)

    plain = identity()
    assert "thinking" not in plain["model"]
    assert identity("model.thinking=off") == identity("model.thinking=false") == identity("model.thinking=0") == plain
    assert identity("model.thinking=low")["model"]["thinking"] == "low"


def test_a_scripted_thought_is_cut_too(tmp_path: Path) -> None:
    rules = tmp_path / "rules.jsonl"
    rules.write_text('{"match": "Where", "reply": "<think>France. </think>Lyon"}')
    engine = Scripted(None, str(rules), 0.0, 1)  # type: ignore[arg-type] # asked for no name
    (reply,) = engine.answer([CALL])
    assert isinstance(reply, Completion)
    assert (reply.text, reply.thought) == ("Lyon", "France.")
