"""llama.cpp's own server with a template that opens the thought in the prompt, under each of its reasoning formats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from kgqa.calls import Choose
from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.engines.openai import OpenAI
from kgqa.engines.weights import Model
from kgqa.types import Completion
from tests.engines.asking import ask, write
from tests.engines.misbehaving import Serving, forward

xllamacpp: Any = pytest.importorskip("xllamacpp", reason="needs llama.cpp's server")
pytestmark = pytest.mark.weights

BUDGET = 24
# As Qwen3's and DeepSeek's: past thoughts are written out, which is how llama.cpp learns the tags, and one is begun
TEMPLATE = """\
{%- for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' and m.reasoning_content %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{% else %}{{ '<think>\n' }}\
{% endif %}{% endif %}"""
QUESTIONS = [f"Name a {thing} and say why you like it." for thing in ("colour", "town", "fish", "tree", "book")]


@pytest.fixture(scope="module", params=["DEEPSEEK", "NONE"])
def address(request: pytest.FixtureRequest, model: Model) -> Iterator[str]:
    """DEEPSEEK puts thoughts into reasoning_content, NONE leaves them in the text."""
    params = xllamacpp.CommonParams()
    params.model.path = str(model.locate())
    params.n_ctx, params.n_parallel, params.verbosity, params.warmup = 4096, 1, -1, False
    params.chat_template, params.use_jinja = TEMPLATE, True
    params.reasoning_format = getattr(xllamacpp.common_reasoning_format, f"COMMON_REASONING_FORMAT_{request.param}")
    server = xllamacpp.Server(params)
    yield f"http://{urlsplit(server.listening_address).netloc}/v1"
    del server


@pytest.fixture
def proxy(address: str, serving: Serving) -> str:
    """Before it stands a proxy, so that it is asked as any hosted server: by messages alone."""
    return serving(always=forward(address)).url


def engine(address: str, model: Model, server: str, **fields: Any) -> OpenAI:
    here = {"base_url": address, "server": server, "served_model": str(model.locate()), **fields}
    made: OpenAI = build(compose(["engine=openai"])["engine"] | here, "engine", model=replace(model, thinking=BUDGET))
    return made


def test_a_chat_reply_is_parted_and_the_servers_budget_passed_on(proxy: str, model: Model) -> None:
    """`thinking_budget_tokens` is llama.cpp's own key: at it the server closes the thought."""
    opened = engine(proxy, model, "hosted", extra={"thinking_budget_tokens": 8})
    replies = ask(opened, [write(question) for question in QUESTIONS])
    opened.close()
    for reply in replies:
        assert isinstance(reply, Completion), reply
        assert reply.thought
        assert "think>" not in reply.thought + reply.text
        assert ("thought_out" in reply.flags) == (not reply.text)
        assert "estimated_thought" in reply.flags  # the server counts output alone
        assert 0 < reply.usage.reasoning_tokens <= reply.usage.output_tokens
    assert any(isinstance(reply, Completion) and reply.text for reply in replies)


def test_thinking_to_the_limit_is_said(proxy: str, model: Model) -> None:
    opened = engine(proxy, model, "hosted")
    (reply,) = ask(opened, [write("Tell me a long story about a fox.", max_tokens=1)])
    opened.close()
    assert isinstance(reply, Completion), reply
    assert (reply.text, reply.finish) == ("", "length")
    assert "thought_out" in reply.flags


def test_a_choice_is_read_behind_the_thought(proxy: str, model: Model) -> None:
    opened = engine(proxy, model, "hosted", extra={"thinking_budget_tokens": 8})
    (choice,) = ask(opened, [Choose(write("Which letter comes first? Answer A or B.").prompt, ("A", "B"))])
    opened.close()
    assert not isinstance(choice, Exception | Completion), choice
    assert "parsed_choice" in choice.flags
    assert choice.thought


def test_asked_as_what_it_is_the_thought_is_closed_and_answered(address: str, model: Model) -> None:
    """engine.server=llamacpp writes in two steps, so that there is an answer whatever the thought came to."""
    opened = engine(address, model, "llamacpp")
    replies = ask(opened, [write(question, max_tokens=6) for question in QUESTIONS])
    opened.close()
    for reply in replies:
        assert isinstance(reply, Completion), reply
        assert "think>" not in reply.thought + reply.text
        assert 0 < reply.usage.reasoning_tokens <= BUDGET
        assert "estimated_thought" not in reply.flags
        assert reply.usage.output_tokens <= BUDGET + 6
    assert sum(bool(reply.text) for reply in replies if isinstance(reply, Completion)) >= 3
