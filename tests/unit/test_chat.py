"""Chat templates, the GGUF headers they come from, and what `model.thinking` makes of prompts and replies."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
import yaml

from kgqa.artifacts.call_schema import reply_from_json, reply_json
from kgqa.calls import Choose, Generate
from kgqa.config.building import build
from kgqa.engines.chat import ChatTemplate
from kgqa.engines.thinking import Thinking, join_thought, split_thought
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.composing import compose_experiment
from kgqa.experiment.identity import identify
from kgqa.types import Completion, Message, Prompt, Usage
from tests.composed import composed_node

TURNS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
CHATML = TURNS + "{% if add_generation_prompt %}<assistant>{% endif %}"
# How templates end: Qwen3's, DeepSeek-R1's and Qwen3-Thinking's, gpt-oss's
HYBRID = (
    CHATML
    + "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
)
ALWAYS = CHATML + r"{{ '<think>\n' }}"
HARMONY = "{% if reasoning_effort %}Reasoning: {{ reasoning_effort }}{% endif %}<|start|>assistant"
# How Gemma 2's template starts, how Mistral-7B-Instruct-v0.1's does, and one that omits what it does not know
REFUSING = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    + CHATML
)
ALTERNATING = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}{% endfor %}"
    + CHATML
)
OMITTING = CHATML.replace(
    "<{{ m.role }}>{{ m.content }}",
    "{% if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endif %}",
)
WHERE = Prompt("test/where", (Message("user", "Where?"),), "Answer:")
CALL = Generate(WHERE, max_tokens=25, stop=("\n",), schema="{}")
PICK = Choose(WHERE, ("A", "B"))
PLAIN = Generate(Prompt("test/plain", (Message("user", "Q:"),), form="completion"), 5)
BRIEF = (Message("system", "Be brief."), Message("user", "Why?"), Message("assistant", "So."))
CONVERSATION = Generate(Prompt("test/chat", BRIEF, "Answer:"), max_tokens=1)


def template(source: str | None, setting: int | str = "off") -> ChatTemplate:
    return ChatTemplate(source, "<s>", "</s>", completion_bos=False, thinking=Thinking.of(setting))


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def gguf(file: Path, *, adds_bos: bool | None = True) -> Path:
    entries = [
        string("general.name") + struct.pack("<I", 8) + string("tiny"),
        string("tokenizer.ggml.scores") + struct.pack("<IIQ", 9, 6, 2) + struct.pack("<ff", 0, 1),
        string("tokenizer.ggml.tokens")
        + struct.pack("<IIQ", 9, 8, 2)
        + string("<s>")
        + string("</s>"),
        string("tokenizer.ggml.merges") + struct.pack("<IIQ", 9, 8, 1) + string("a b"),
        string("tokenizer.ggml.model") + struct.pack("<I", 8) + string("llama"),
        string("tokenizer.ggml.bos_token_id") + struct.pack("<II", 4, 0),
        string("tokenizer.ggml.eos_token_id") + struct.pack("<II", 4, 1),
        string("tokenizer.chat_template")
        + struct.pack("<I", 8)
        + string("{{ bos_token }}" + CHATML),
    ]
    if adds_bos is not None:
        entries.append(string("tokenizer.ggml.add_bos_token") + struct.pack("<I?", 7, adds_bos))
    file.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + b"".join(entries))
    return file


@pytest.mark.parametrize(
    ("adds_bos", "plain"),
    [
        pytest.param(True, "<s>Q:", id="with bos"),
        pytest.param(False, "Q:", id="without bos"),
        pytest.param(None, "<s>Q:", id="unknown"),
    ],
)
def test_template_of_a_gguf_file(tmp_path: Path, adds_bos: bool | None, plain: str) -> None:
    template = ChatTemplate.of(gguf(tmp_path / f"{adds_bos}.gguf", adds_bos=adds_bos))
    assert template.render(CALL) == "<s><user>Where?<assistant>Answer:"
    assert (template.eos, template.render(PLAIN)) == ("</s>", plain)


def test_damaged_gguf_file_is_rejected(tmp_path: Path) -> None:
    file = gguf(tmp_path / "page.gguf")
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(DataError, match="header is broken"):
        ChatTemplate.of(file)
    file.write_bytes(b"<html>" + b" " * 50)
    with pytest.raises(DataError, match=r"page\.gguf: not a GGUF file"):
        ChatTemplate.of(file)


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(REFUSING, id="rejecting"),
        pytest.param(ALTERNATING, id="alternating"),
        pytest.param(OMITTING, id="omitting"),
    ],
)
def test_template_without_system_role(source: str) -> None:
    assert (
        template(source).render(CONVERSATION)
        == "<user>Be brief.\n\nWhy?<assistant>So.<assistant>Answer:"
    )
    assert template(source).flags(CONVERSATION) == ("no_system",)
    assert template(source).flags(CALL) == template(CHATML).flags(CONVERSATION) == ()


def test_conversation_with_and_without_template() -> None:
    assert (
        template(CHATML).render(CONVERSATION)
        == "<system>Be brief.<user>Why?<assistant>So.<assistant>Answer:"
    )
    bare = ChatTemplate(None, "<s>", "</s>", completion_bos=True)
    assert bare.render(CONVERSATION) == "<s>Be brief.\n\nWhy?\n\nSo.\nAnswer:"
    assert (bare.flags(CONVERSATION), bare.render(PLAIN), bare.flags(PLAIN)) == (
        ("no_template",),
        "<s>Q:",
        (),
    )
    assert template(None, 100).flags(CALL) == ("no_template", "no_thinking")


OPENED = "<user>Where?<assistant><think>\n"
CLOSED = "<user>Where?<assistant><think>\n\n</think>\n\nAnswer:"


@pytest.mark.parametrize(
    ("source", "setting", "call", "text"),
    [
        pytest.param(HYBRID, 100, CALL, OPENED, id="hybrid, on"),
        pytest.param(ALWAYS, 100, CALL, OPENED, id="always, on"),
        pytest.param(CHATML, 100, CALL, OPENED, id="chatml, on"),
        pytest.param(HYBRID, "off", CALL, CLOSED, id="hybrid, off"),
        pytest.param(ALWAYS, "off", CALL, CLOSED, id="always, off"),
        pytest.param(HYBRID, "high", PICK, CLOSED, id="hybrid, choice"),
        pytest.param(ALWAYS, "high", PICK, CLOSED, id="always, choice"),
        pytest.param(
            HARMONY,
            "low",
            CALL,
            "Reasoning: low<|start|>assistant<|channel|>analysis<|message|>",
            id="harmony, low",
        ),
        pytest.param(
            HARMONY,
            "off",
            CALL,
            "<|start|>assistant<|channel|>final<|message|>Answer:",
            id="harmony, off",
        ),
        pytest.param(HYBRID, 100, PLAIN, "Q:", id="completion"),
    ],
)
def test_end_of_prompt(source: str, setting: int | str, call: Any, text: str) -> None:
    assert template(source, setting).render(call) == text
    assert template(source, setting).flags(call) == (("no_thinking",) if call == PLAIN else ())


@pytest.mark.parametrize("value", ["max", "-1", "true", "1.5"])
def test_invalid_thinking_is_rejected(value: str) -> None:
    with pytest.raises(ConfigError, match=r"^model\.thinking=[^\n]+$"):
        build(
            {**composed_node("model", "smollm2_135m"), "thinking": yaml.safe_load(value)}, "model"
        )


def test_setting_is_in_identity_only_if_on() -> None:
    def identity(*words: str) -> Any:
        return identify(
            compose_experiment(["method=no_context", "dataset=demo", "engine=scripted", *words])
        )

    plain = identity()
    assert identity("model.thinking=false") == identity("model.thinking=0") == plain
    assert identity("model.thinking=low")["answering"]["default"]["model"]["thinking"] == "low"


def reply(text: str, output: int = 10, reasoning: int = 0, finish: Any = "stop") -> Completion:
    return Completion(text, finish, Usage(5, 0, output, 0.1, reasoning))


CHANNELS = "<|channel|>analysis<|message|>It is in France.<|end|><|start|>assistant<|channel|>final<|message|>Lyon"


@pytest.mark.parametrize(
    ("text", "answer", "reasoning"),
    [
        pytest.param(
            "<think>\nIt is in France.\n</think>\n\nLyon", "Lyon", "It is in France.", id="block"
        ),
        # the prompt opened it
        pytest.param(
            "It is in France.\n</think>\n\nLyon",
            "Lyon",
            "It is in France.",
            id="block opened by the prompt",
        ),
        # the prompt opened it
        pytest.param("\n<think>A</think><think>B</think>Lyon", "Lyon", "A\nB", id="two blocks"),
        pytest.param("Ly<think>A</think>on", "Lyon", "A", id="block within the answer"),
        pytest.param("<think>\n\n</think>\n\nLyon", "Lyon", "", id="empty block"),
        pytest.param(CHANNELS, "Lyon", "It is in France.", id="channels"),
        # special tokens omitted
        pytest.param(
            "analysisIt is in France.assistantfinalLyon",
            "Lyon",
            "It is in France.",
            id="channels without special tokens",
        ),
        # special tokens omitted
        pytest.param(
            "<|start|>assistant<|channel|>final<|message|>Lyon<|return|>",
            "Lyon",
            "",
            id="final channel",
        ),
        pytest.param("<think>It is in", "", "It is in", id="unfinished block"),
        pytest.param(
            "<think>It is in France.</think>\n",
            "",
            "It is in France.",
            id="block without an answer",
        ),
        pytest.param(
            "<|channel|>analysis<|message|>It is in", "", "It is in", id="unfinished channel"
        ),
    ],
)
def test_thought_is_split_from_the_answer(text: str, answer: str, reasoning: str) -> None:
    split = split_thought(reply(text))
    assert (split.text, split.thought, "thought_out" in split.flags) == (
        answer,
        reasoning,
        not answer,
    )


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        pytest.param("It is in", "", id="unfinished thought"),
        pytest.param("<think>\n\n</think>\n\nLyon", "Lyon", id="finished thought"),
    ],
)
def test_truncated_thought_has_no_answer(text: str, answer: str) -> None:
    assert split_thought(reply(text, finish="length"), thinks=True).text == answer


def test_split_and_join_thought() -> None:
    split = split_thought(reply("Lyon", output=30, reasoning=7), "It is in France.")
    assert reply_from_json(CALL, reply_json(split)) == split
    assert "thought" not in reply_json(reply("Lyon"))
    # as in traces and caches from the start
    assert len(reply_json(reply("Lyon"))["usage"]) == 4
    joined = join_thought(reply("It is in", output=8, finish="length"), reply("Lyon", output=2))
    assert (joined.text, joined.thought, joined.finish, joined.flags) == (
        "Lyon",
        "It is in",
        "stop",
        ("thought_out",),
    )
    usage = joined.usage
    assert (usage.prompt_tokens, usage.output_tokens, usage.reasoning_tokens) == (5, 10, 8)
