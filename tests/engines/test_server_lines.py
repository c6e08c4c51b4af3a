"""The first line that kgqa prints for each kind of server, right or wrong. All servers here are simulated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from kgqa.cli.main import main
from tests.engines.test_detection import (
    HOSTED,
    LITELLM,
    LLAMACPP,
    OLLAMA,
    PROXIED,
    SGLANG,
    VLLM,
    listing,
)
from tests.http_server import serve_json

pytest.importorskip("aiohttp", reason="engine openai needs aiohttp")
KEY = "sk-4Wq81"
AZURE = {"/openai/v1/models": listing("system", "gpt-4o-mini")}
WRONG_KEY = (
    401,
    {"error": {"message": f"Incorrect API key provided: {KEY}.", "code": "invalid_api_key"}},
)
NOT_FOUND = (404, {"detail": "Not Found"})
DENIED = f"kgqa: {{}}/v1 does not list its models: 401 Incorrect API key provided: {KEY}."
ELSEWHERE = {"Location": "https://llm.example/v1/models"}


class Site:
    """A simulated server: what it answers by path, or to all requests."""

    def __init__(
        self,
        answers: Mapping[str, Any],
        key: str = "",
        other: tuple[int, Any] = NOT_FOUND,
        **headers: str,
    ) -> None:
        self.answers, self.key, self.other, self.headers = answers, key, other, headers

    def answer(self, request: BaseHTTPRequestHandler, _: bytes) -> tuple[int, Any]:
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            return WRONG_KEY
        return (200, self.answers[request.path]) if request.path in self.answers else self.other


@pytest.fixture
def address(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve the site of the case. Yield its address."""
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    with ExitStack() as servers:
        yield servers.enter_context(serve_json(request.param.answer, request.param.headers))


def first_line(capfd: pytest.CaptureFixture[str], tmp_path: Path, *words: str) -> str:
    main(["run", "method=no_context", "limit=1", "dry_run=true", f"output_dir={tmp_path}", *words])
    out, err = capfd.readouterr()
    return (out + err).splitlines()[0]


@pytest.mark.parametrize(
    ("address", "path", "words", "line"),
    [
        (Site(VLLM), "/v1", "", "server: vLLM 0.11.0 at {}/v1, model Qwen/Qwen3-8B, context 16,384 tokens"),
        (Site(VLLM), "", "", "server: vLLM 0.11.0 at {}/v1, model Qwen/Qwen3-8B, context 16,384 tokens"),
        (Site(PROXIED), "/v1", "", "server: vLLM behind a proxy that passes only /v1 at {}/v1, model Qwen/Qwen3-8B"),
        (Site(SGLANG), "/v1", "", "server: SGLang at {}/v1, model Qwen/Qwen3-8B, context 32,768 tokens"),
        (Site(LLAMACPP), "/v1", "", "server: llama.cpp at {}/v1, model /models/tiny.gguf, context 4,096 tokens"),
        (Site(OLLAMA), "/v1", "model=qwen3_8b", "server: Ollama 0.13.0 at {}/v1, model qwen3:8b, context 16,384"),
        (Site(OLLAMA), "/v1", "", "kgqa: {}/v1 serves 2 models. Choose one with model=NAME: llama3.2"),
        (Site(LITELLM), "", "", "server: LiteLLM 1.80.0 at {}/v1, model my-gpt"),
        (Site(HOSTED), "/api/v1", "model=qwen/qwen3-8b", "server: OpenAI-compatible at {}/api/v1, model qwen/qwen3-8b"),
        (Site(AZURE), "/openai/v1", "model=gpt_4o_mini", "server: OpenAI-compatible at {}/openai/v1"),
        (Site(VLLM, KEY), "/v1", "engine.api_key_env=RIGHT", "server: vLLM 0.11.0 at {}/v1, model Qwen/Qwen3-8B"),
        (
            Site(VLLM, KEY), "/v1", "engine.api_key_env=WRONG",
            f"{DENIED} Check the address and the key in WRONG",
        ),
        (
            Site(VLLM, KEY), "/v1", "",
            f"{DENIED} Check the address, set OPENAI_API_KEY if",
        ),
        (Site({}), "/v2", "", "kgqa: {}/v2 does not list its models: 404 Not Found. Check the address, set OPENAI_"),
        (Site({}, other=(301, {}), **ELSEWHERE), "/v1", "", "kgqa: {}/v1 does not list its models: the server"),
    ],
    ids=[
        "vllm", "vllm-without-v1", "vllm-behind-proxy", "sglang", "llamacpp", "ollama", "two-models", "litellm",
        "hosted", "azure", "right-key", "wrong-key", "no-key", "wrong-path", "redirect",
    ],
    indirect=["address"],
)  # fmt: skip
def test_first_line_of_a_server(
    address: str, path: str, words: str, line: str, capfd: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("RIGHT", KEY)
    monkeypatch.setenv("WRONG", "sk-other")
    assert first_line(capfd, tmp_path, f"server={address}{path}", *words.split()).startswith(
        line.format(address)
    )


@pytest.mark.parametrize(
    ("server", "line"),
    [
        (
            "http://127.0.0.1:9/v1",
            "http://127.0.0.1:9/v1: no connection (Connection refused). Start the",
        ),
        ("http://[::1]:9/v1", "http://[::1]:9/v1: no connection ("),
        ("7", "kgqa: server=7: must be an address like http://127.0.0.1:8000/v1"),
        (
            "localhost:8000",
            "kgqa: server=localhost:8000: must be an address like http://127.0.0.1:8000/v1",
        ),
        (
            "http://[::1/v1",
            "kgqa: server=http://[::1/v1: must be an address like http://127.0.0.1:8000/v1",
        ),
        ("http://127.0.0.1:80000", "kgqa: server=http://127.0.0.1:80000: must be an address like"),
        (
            "http://me:sk-4Wq81@host/v1",
            "kgqa: server must not contain a user name, password or query",
        ),
    ],
    ids=["wrong-port", "ipv6", "number", "no-scheme", "open-bracket", "large-port", "password"],
)
def test_first_line_without_a_server(
    server: str, line: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert first_line(capfd, tmp_path, f"server={server}", "engine.server_timeout=0.2").startswith(
        line
    )
