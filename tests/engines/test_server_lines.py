"""The first line that kgqa prints for each kind of server, right or wrong.

Most servers are simulated. llama.cpp, vLLM and LiteLLM are also tried as they are, where they are installed. Put
the command `litellm` of `pip install 'litellm[proxy]'` on PATH for the last one.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from kgqa.cli.main import main
from kgqa.engines.weights import Model
from tests.engines.asking import CONTEXT
from tests.engines.conftest import served
from tests.engines.small import Small
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
from tests.engines.vllm_server import serving
from tests.http_server import serve_json

pytest.importorskip("aiohttp", reason="engine openai needs aiohttp")
KEY = "sk-4Wq81"
# LiteLLM rejects a short master key
LONG_KEY = "sk-4Wq81-a-master-key-that-is-long-enough"
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
            f"{DENIED} Check the address and the key in WRONG.",
        ),
        (
            Site(VLLM, KEY), "/v1", "",
            f"{DENIED} Check the address and set OPENAI_API_KEY.",
        ),
        (
            Site({}, other=(502, {"detail": "Bad Gateway"})), "/v2", "",
            "kgqa: {}/v2 does not list its models: 502 Bad Gateway. The server behind this address is down.",
        ),
        (Site({}), "/v2", "", "kgqa: {}/v2 does not list its models: 404 Not Found. Check the address, set OPENAI_"),
        (Site({}, other=(301, {}), **ELSEWHERE), "/v1", "", "kgqa: {}/v1 does not list its models: the server"),
    ],
    ids=[
        "vllm", "vllm-without-v1", "vllm-behind-proxy", "sglang", "llamacpp", "ollama", "two-models", "litellm",
        "hosted", "azure", "right-key", "wrong-key", "no-key", "down", "wrong-path", "redirect",
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


@pytest.mark.weights
def test_first_line_of_real_llamacpp(
    model: Model, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("xllamacpp", reason="the server of llama.cpp needs xllamacpp")
    url = f"{served(model).listening_address}/v1"
    capfd.readouterr()
    expected = f"server: llama.cpp at {url}, model {model.locate()}, context {CONTEXT:,} tokens"
    assert first_line(capfd, tmp_path, f"server={url}") == expected


@pytest.mark.weights
def test_first_line_of_real_vllm(
    request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("vllm", reason="vLLM has its own environment")
    small: Small = request.getfixturevalue("small")
    # a busy machine needs minutes
    with serving(small.folder.locate(), seconds=900) as url:
        capfd.readouterr()
        line = first_line(capfd, tmp_path, f"server={url}", "engine.api_key_env=NO_KEY")
    end = f" at {url}, model {small.folder.locate()}, context 2,048 tokens"
    assert line.startswith("server: vLLM ")
    assert line.endswith(end)


@pytest.fixture(scope="module")
def litellm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A LiteLLM proxy with one model and the key `KEY`."""
    program = shutil.which("litellm")
    if program is None:
        pytest.skip("no command litellm on PATH")
    folder = tmp_path_factory.mktemp("litellm")
    entry = "{model_name: mine, litellm_params: {model: openai/tiny, api_base: 'http://127.0.0.1:9/v1', api_key: none}}"
    (folder / "config.yaml").write_text(f"model_list: [{entry}]\n", encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [program, "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port)]
    environment = {**os.environ, "LITELLM_MASTER_KEY": LONG_KEY}
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(words, cwd=folder, env=environment, stdout=log, stderr=log)
    deadline = time.monotonic() + 120
    while server.poll() is None and time.monotonic() < deadline:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            break
        time.sleep(0.5)
    yield f"http://127.0.0.1:{port}"
    server.terminate()
    server.wait(60)


@pytest.mark.parametrize(
    ("key", "line"),
    [
        (LONG_KEY, "server: LiteLLM "),
        ("sk-other", "kgqa: {} does not list its models: 400 No connected db. Check the address and the key in NAMED"),
    ],
    ids=["right key", "wrong key"],
)  # fmt: skip
def test_first_line_of_real_litellm(
    key: str, line: str, litellm: str, capfd: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("NAMED", key)
    words = (f"server={litellm}", "engine.api_key_env=NAMED")
    assert first_line(capfd, tmp_path, *words).startswith(line.format(litellm))
