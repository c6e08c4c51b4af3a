"""Every command that the documentation shows runs, page by page, in the order in which somebody would type them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scripts.regenerate_readme import shortened
from tests.e2e.documented_world import write_world
from tests.engines.misbehaving import Body, Conversation, Misbehaving, reply
from tests.retrieval.elasticsearch_servers import StandIn
from tests.shown_commands import Shell, Shown, elsewhere, every_command

COMMANDS = every_command()
HERE = [page for page, commands in COMMANDS.items() if not all(elsewhere(each.typed) for each in commands)]
VLLM = r"http://127\.0\.0\.1:80[08]0(?=/v1)"  # serves one model, so that a command need not name it
SERVERS = r"https?://(127\.0\.0\.1:(4000|5000|8001|11434)|my\.proxy|openrouter\.ai/api)(?=/v1|\s)"

KEYS = ("OPENAI_API_KEY", "LITELLM_MASTER_KEY", "OPENROUTER_API_KEY", "LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY")


@pytest.fixture
def server() -> Iterator[Misbehaving]:
    """Start a server that speaks OpenAI's protocol, and takes whatever else it is sent."""
    with serve("Qwen/Qwen3-8B", "NAME", "qwen3:8b", "qwen/qwen3-8b") as started:
        yield started


@pytest.fixture
def vllm() -> Iterator[Misbehaving]:
    with serve("Qwen/Qwen3-8B") as started:
        yield started


@contextmanager
def serve(*models: str) -> Iterator[Misbehaving]:
    def answer(talk: Conversation, body: Body) -> None:
        vectors = [{"embedding": [1.0, len(text)]} for text in body.get("input", ())]
        talk.answer(200, {"data": vectors} if vectors else reply(body) if "model" in body else {})

    started = Misbehaving(always=answer)
    started.models = [{"id": name} for name in models]
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture
def search_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    stand_in = StandIn(tmp_path / "stand-in")  # started by the page that needs it
    monkeypatch.setenv("KGQA_ES_URL", stand_in.url)
    yield stand_in
    stand_in.stop()


@pytest.fixture
def shell(tmp_path: Path, server: Misbehaving, vllm: Misbehaving, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """In a folder where one run has ended."""
    folder = tmp_path / "world"
    write_world(folder)
    address = server.url.removesuffix("/v1")
    places = {"KGQA_DATA": str(folder / "data"), "OPENAI_BASE_URL": server.url, "LANGFUSE_HOST": address}
    for name, value in {**dict.fromkeys(KEYS, "none"), **places, "BROWSER": "true", "COLUMNS": "110"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("KGQA_CACHE", raising=False)
    shell = Shell(folder, monkeypatch, [(VLLM, vllm.url.removesuffix("/v1")), (SERVERS, address)])
    assert shell.run("kgqa run method=knowtrace dataset=demo limit=3")[0] == 0
    return shell


@pytest.mark.parametrize("page", HERE, ids=lambda page: page.stem)
def test_the_commands_of_a_page_run_in_their_order(page: Path, shell: Shell, search_server: StandIn) -> None:
    commands = [each for each in COMMANDS[page] if not elsewhere(each.typed)]
    if any("retriever=elasticsearch" in each.typed for each in commands):
        search_server.start()
    wrong = [f"{each.place}: {each.typed}\n{told}" for each in commands if (told := trouble(each, shell))]
    assert not wrong, "\n\n".join(wrong)


def trouble(each: Shown, shell: Shell) -> str:
    """What a command printed if it failed, or if it is not what the page shows."""
    code, told = shell.run(each.typed)
    if code:
        return f"exit code {code}\n{told}"
    if not each.kept or "with weights" in each.kept:
        return ""
    lines = shortened(told, each.kept)
    return "" if without_seconds(lines) == without_seconds(each.output.splitlines()) else "\n".join(lines)


def without_seconds(lines: list[str]) -> list[str]:
    return [re.sub(r"\b[\d.]+ s\b", "… s", line) for line in lines if line]
