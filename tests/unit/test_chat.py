"""Chat templates and the GGUF headers they come from."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from kgqa.calls import Generate
from kgqa.engines.chat import ChatTemplate
from kgqa.errors import DataError, EngineError
from kgqa.types import Message, Prompt

CHATML = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def ask(text: str, prefill: str = "") -> Generate:
    return Generate(Prompt("test/chat", (Message("user", text),), prefill), max_tokens=1)


def complete(text: str) -> Generate:
    return Generate(Prompt("test/completion", (Message("user", text),), form="completion"), max_tokens=1)


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def gguf(file: Path, *, adds_bos: bool | None) -> Path:
    entries = [
        string("general.name") + struct.pack("<I", 8) + string("tiny"),
        string("tokenizer.ggml.scores") + struct.pack("<IIQ", 9, 6, 2) + struct.pack("<ff", 0, 1),
        string("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + string("<s>") + string("</s>"),
        string("tokenizer.ggml.merges") + struct.pack("<IIQ", 9, 8, 1) + string("a b"),
        string("tokenizer.ggml.model") + struct.pack("<I", 8) + string("llama"),
        string("tokenizer.ggml.bos_token_id") + struct.pack("<II", 4, 0),
        string("tokenizer.ggml.eos_token_id") + struct.pack("<II", 4, 1),
        string("tokenizer.chat_template") + struct.pack("<I", 8) + string("{{ bos_token }}" + CHATML),
    ]
    if adds_bos is not None:
        entries.append(string("tokenizer.ggml.add_bos_token") + struct.pack("<I?", 7, adds_bos))
    file.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + b"".join(entries))
    return file


def test_the_template_and_the_special_tokens_come_out_of_the_gguf_file(tmp_path: Path) -> None:
    template = ChatTemplate.of(gguf(tmp_path / "tiny.gguf", adds_bos=True))
    assert template.render(ask("Hi", prefill="Well,")) == "<s><user>Hi<assistant>Well,"
    assert template.eos == "</s>"


@pytest.mark.parametrize(("adds_bos", "expected"), [(True, "<s>Q:"), (False, "Q:"), (None, "<s>Q:")])
def test_a_completion_starts_with_bos_where_the_file_says_so(
    tmp_path: Path, adds_bos: bool | None, expected: str
) -> None:
    template = ChatTemplate.of(gguf(tmp_path / "tiny.gguf", adds_bos=adds_bos))
    assert template.render(complete("Q:")) == expected


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "page.gguf").write_bytes(b"<html>" + b" " * 50)
    with pytest.raises(DataError, match=r"page\.gguf: not a GGUF file"):
        ChatTemplate.of(tmp_path / "page.gguf")


def test_a_truncated_gguf_is_refused(tmp_path: Path) -> None:
    file = gguf(tmp_path / "tiny.gguf", adds_bos=True)
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(DataError, match="header is broken"):
        ChatTemplate.of(file)


def test_templates_see_a_fixed_date_and_thinking_switched_off() -> None:
    source = "{{ strftime_now('%d %b %Y') }} {{ enable_thinking }} " + CHATML
    rendered = ChatTemplate(source, "", "", completion_bos=False).render(ask("Hi"))
    assert rendered == "26 Jul 2024 False <user>Hi<assistant>"


def test_a_template_that_refuses_the_messages_is_that_calls_error() -> None:
    template = ChatTemplate("{{ raise_exception('no system role') }}", "", "", completion_bos=False)
    with pytest.raises(EngineError, match="no system role"):
        template.render(ask("Hi"))


# How Gemma 2's template begins, how Mistral-7B-Instruct-v0.1's does, and one that leaves out what it does not know
REFUSING = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + CHATML
ALTERNATING = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}{% endfor %}" + CHATML
)
DEAF = (
    "{% for m in messages %}{% if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}<assistant>"
)


@pytest.mark.parametrize("source", [REFUSING, ALTERNATING, DEAF])
def test_a_template_without_a_system_role_is_given_the_instruction_with_the_question(source: str) -> None:
    template = ChatTemplate(source, "", "", completion_bos=False)
    messages = (Message("system", "Be brief."), Message("user", "Why?"), Message("assistant", "So."))
    conversation = Generate(Prompt("test/chat", messages, "Answer:"), max_tokens=1)
    assert template.render(conversation) == "<user>Be brief.\n\nWhy?<assistant>So.<assistant>Answer:"
    assert template.flags(conversation) == ("no_system",)
    assert template.flags(ask("Why?")) == ()
    heard = ChatTemplate(CHATML, "", "", completion_bos=False)
    assert heard.render(conversation) == "<system>Be brief.<user>Why?<assistant>So.<assistant>Answer:"
    assert heard.flags(conversation) == ()


def test_a_template_that_refuses_everything_says_so_of_a_system_message_too() -> None:
    template = ChatTemplate("{{ raise_exception('no more') }}", "", "", completion_bos=False)
    messages = (Message("system", "Be brief."), Message("user", "Why?"))
    with pytest.raises(EngineError, match="no more"):
        template.render(Generate(Prompt("test/chat", messages), max_tokens=1))


def test_weights_without_a_template_are_given_a_conversation_as_plain_text_and_say_so() -> None:
    template = ChatTemplate(None, "<s>", "</s>", completion_bos=True)
    messages = (Message("system", "Be brief."), Message("user", "Question: why?"))
    conversation = Generate(Prompt("test/chat", messages, "Answer:"), max_tokens=1)
    assert template.render(conversation) == "<s>Be brief.\n\nQuestion: why?\nAnswer:"
    assert template.flags(conversation) == ("no_template",)
    assert template.render(complete("Q:")) == "<s>Q:"
    assert template.flags(complete("Q:")) == ()


def test_a_conversation_with_a_template_carries_no_flag() -> None:
    assert ChatTemplate(CHATML, "", "", completion_bos=False).flags(ask("Hi")) == ()


# How Qwen3's template ends: asked not to think, it writes an empty thought
THINKING = CHATML + "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
# How gpt-oss's ends: a turn without a channel, in which the model would open the one for thinking
HARMONY = "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}<|start|>assistant"


def test_a_thinking_model_is_given_an_empty_thought_before_the_prefill() -> None:
    template = ChatTemplate(THINKING, "", "", completion_bos=False)
    assert template.render(ask("Hi", "Answer:")) == "<user>Hi<assistant><think>\n\n</think>\n\nAnswer:"


def test_a_model_with_channels_starts_in_the_one_that_answers() -> None:
    template = ChatTemplate(HARMONY, "", "", completion_bos=False)
    begun = "<|start|>user<|message|>Hi<|end|><|start|>assistant<|channel|>final<|message|>Answer:"
    assert template.render(ask("Hi", "Answer:")) == begun


def test_a_folder_of_several_templates_gives_its_default(tmp_path: Path) -> None:
    settings = {"chat_template": [{"name": "default", "template": CHATML}, {"name": "tools", "template": "no"}]}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert ChatTemplate.of(tmp_path).render(ask("Hi")) == "<user>Hi<assistant>"
