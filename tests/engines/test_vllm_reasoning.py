"""vLLM's own reasoning parsers: what they part is what is parted here, and their server's replies are read."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vLLM has an environment of its own: make test-engines runs its tests there")

from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.engines.openai import OpenAI
from kgqa.engines.thinking import split_thought
from kgqa.engines.weights import Model
from kgqa.types import Completion, Usage
from tests.engines.asking import ask, write
from tests.engines.misbehaving import Serving, forward
from tests.engines.tiny import tiny

pytestmark = [pytest.mark.weights, pytest.mark.filterwarnings("ignore::DeprecationWarning")]  # torch's own

BUDGET = 24
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n{{ '<think>\n' }}"
)
RAW = {  # what a model writes behind a prompt that opened the thought, or did not
    "In France.\n</think>\n\nLyon": ("Lyon", "In France."),
    "<think>\nIn France.\n</think>\n\nLyon": ("Lyon", "In France."),
    "<think>In": ("", "In"),
    "A</think>B</think>C": None,  # nobody says what that is
}
SETTINGS = {"dtype": "float32", "max-model-len": "2048", "kv-cache-memory-bytes": "1G"}


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory, model: Model) -> Model:
    """Random weights whose vocabulary has the tags, as vLLM's parsers want it, and whose template opens one."""
    folder = tiny(tmp_path_factory.mktemp("taught"), model)
    for file in ("tokenizer.json", "tokenizer_config.json"):  # in place of two tokens for source code
        text = (folder / file).read_text(encoding="utf-8")
        (folder / file).write_text(text.replace("<file_sep>", "<think>").replace("<filename>", "</think>"))
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    for token in tokenizer["added_tokens"]:
        token["special"] &= "think>" not in token["content"]  # as Qwen3's and DeepSeek's are
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return replace(model, name="taught", path=str(folder), sha256=None, packages=(), thinking=BUDGET)


@pytest.mark.parametrize("parser", ["deepseek_r1", "qwen3"])
@pytest.mark.parametrize("raw", [raw for raw, parts in RAW.items() if parts])
def test_its_parsers_part_as_we_do(taught: Model, parser: str, raw: str) -> None:
    from transformers import AutoTokenizer
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.reasoning import ReasoningParserManager

    parsing = ReasoningParserManager.get_reasoning_parser(parser)(AutoTokenizer.from_pretrained(taught.path))
    reasoning, content = parsing.extract_reasoning(raw, ChatCompletionRequest(messages=[], model="taught"))
    reply = split_thought(Completion(raw, usage=Usage(1, 0, 10)))
    assert ((content or "").strip(), (reasoning or "").strip()) == RAW[raw] == (reply.text, reply.thought)


@pytest.fixture(scope="module")
def served(taught: Model) -> Iterator[str]:
    """Its server with a reasoning parser; the address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = [word for key, value in SETTINGS.items() for word in (f"--{key}", value)]
    tags = '{"reasoning_start_str": "<think>", "reasoning_end_str": "</think>"}'
    thinking = ["--enforce-eager", "--reasoning-parser", "deepseek_r1", "--reasoning-config", tags]
    command = ["bash", str(Path(__file__).parents[2] / "scripts" / "serve_vllm.sh"), str(taught.path)]
    server = subprocess.Popen(
        [*command, *flags, *thinking],
        env={**os.environ, "PORT": str(port), "PYTHON": sys.executable, "VLLM_API_KEY": ""},
    )
    deadline = time.monotonic() + 300
    while server.poll() is None and time.monotonic() < deadline:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            break
        time.sleep(0.5)
    yield f"http://127.0.0.1:{port}/v1"
    server.terminate()
    server.wait(60)


def engine(address: str, model: Model, server: str, **fields: Any) -> OpenAI:
    here = {"base_url": address, "server": server, "served_model": model.path, **fields}
    made: OpenAI = build(compose(["engine=openai"])["engine"] | here, "engine", model=model)
    return made


def replies(opened: OpenAI, **fields: Any) -> list[Completion]:
    got = ask(opened, [write(f"Name a {thing}.", 6, **fields) for thing in ("colour", "town", "fish", "tree")])
    opened.close()
    assert all(isinstance(reply, Completion) for reply in got), got
    return [reply for reply in got if isinstance(reply, Completion)]


def test_its_chat_replies_are_read_as_a_hosted_servers(served: str, taught: Model, serving: Serving) -> None:
    """Random weights never end their thought."""
    for reply in replies(engine(serving(always=forward(served)).url, taught, "hosted")):
        assert (reply.text, reply.finish) == ("", "length")
        assert reply.thought
        assert "thought_out" in reply.flags
        assert reply.usage.reasoning_tokens > 0


def test_its_own_budget_is_passed_on(served: str, taught: Model, serving: Serving) -> None:
    """`thinking_token_budget`: at it the server closes the thought, so that an answer follows."""
    proxy = serving(always=forward(served)).url
    for reply in replies(engine(proxy, taught, "hosted", extra={"thinking_token_budget": 8})):
        assert reply.text
        assert reply.thought
        assert "think>" not in reply.text + reply.thought


def test_asked_as_what_it_is_it_answers_in_two_steps(served: str, taught: Model) -> None:
    for reply in replies(engine(served, taught, "vllm")):
        assert reply.text
        assert (reply.usage.reasoning_tokens, reply.usage.output_tokens) == (BUDGET, BUDGET + 6)
        assert "thought_out" in reply.flags
        assert "think>" not in reply.text + reply.thought
