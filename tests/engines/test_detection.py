"""Test which kind of server and which models kgqa finds at an address. The servers answer as their software does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from kgqa.engines.openai.detection import detect_server, last_seen_server
from kgqa.engines.openai.names import is_same_model, is_snapshot
from kgqa.errors import ConfigError, EngineDied
from kgqa.experiment.experiment import Experiment
from kgqa.util.fs import outputs
from tests import http_server

pytest.importorskip("aiohttp", reason="engine openai needs aiohttp")
Answers = Mapping[str, Any]


def listing(owner: str, *names: str, **facts: Any) -> Any:
    return {"object": "list", "data": [{"id": name, "object": "model", "owned_by": owner, **facts} for name in names]}


TOKENS = {"tokens": [1], "count": 1}
VLLM = {
    "/v1/models": listing("vllm", "Qwen/Qwen3-8B", max_model_len=16384, parent=None),
    "/version": {"version": "0.11.0"},
    "/tokenize": TOKENS,
}
ADAPTED = {
    **VLLM,
    "/v1/models": {
        "data": [
            {"id": "sim", "owned_by": "vllm", "parent": None, "max_model_len": 2048},
            {"id": "safe", "owned_by": "vllm", "parent": "sim"},
        ]
    },
}
PROXIED = {"/v1/models": VLLM["/v1/models"]}  # a proxy that lets only /v1 through
SGLANG = {"/v1/models": listing("sglang", "Qwen/Qwen3-8B", max_model_len=40960), "/tokenize": TOKENS}
LLAMACPP = {
    "/v1/models": listing("llamacpp", "/models/tiny.gguf", meta={"n_ctx_train": 8192}),
    "/models": listing("llamacpp", "/models/tiny.gguf"),
    "/props": {"default_generation_settings": {"n_ctx": 4096}, "total_slots": 2},
    "/tokenize": TOKENS,
}
OLLAMA = {
    "/v1/models": listing("library", "qwen3:8b", "llama3.2:latest"),
    "/api/version": {"version": "0.13.0"},
    "/api/show": {"parameters": 'stop "<|im_end|>"\nnum_ctx 16384', "model_info": {"qwen3.context_length": 40960}},
}
LITELLM = {
    "/v1/models": listing("openai", "my-gpt"),
    "/models": listing("openai", "my-gpt"),
    "/health/readiness": {"status": "healthy", "litellm_version": "1.80.0"},
}
HOSTED = {"/api/v1/models": {"data": [{"id": "qwen/qwen3-8b", "context_length": 40960}, {"id": "other/model"}]}}
SILENT: Answers = {}


@contextmanager
def serving(answers: Answers) -> Iterator[str]:
    """Serve JSON by path, and 404 as FastAPI writes it for all other paths."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status = 200 if self.path in answers else 404
            content = json.dumps(answers.get(self.path, {"detail": "Not Found"})).encode()
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815 - a name of the standard library

    with http_server.serve(Answer) as url:
        yield url


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Answers], str]]:
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    with ExitStack() as servers:
        yield lambda answers: servers.enter_context(serving(answers))


@pytest.mark.parametrize(
    ("answers", "kind", "software", "contexts"),
    [
        (VLLM, "vllm", "vLLM 0.11.0", {"Qwen/Qwen3-8B": 16384}),
        (ADAPTED, "vllm", "vLLM 0.11.0", {"sim": 2048}),
        (PROXIED, "hosted", "", {"Qwen/Qwen3-8B": 16384}),
        (SGLANG, "sglang", "SGLang", {"Qwen/Qwen3-8B": 40960}),
        (LLAMACPP, "llamacpp", "llama.cpp", {"/models/tiny.gguf": 4096}),
        (OLLAMA, "hosted", "Ollama 0.13.0", {"qwen3:8b": 16384, "llama3.2:latest": 16384}),
        (LITELLM, "hosted", "LiteLLM 1.80.0", {"my-gpt": None}),
        (HOSTED, "hosted", "", {"qwen/qwen3-8b": 40960, "other/model": None}),
        (SILENT, "hosted", "", {}),
    ],
    ids=["vllm", "adapter", "proxied", "sglang", "llamacpp", "ollama", "litellm", "hosted", "silent"],
)
def test_kind_and_models_are_detected(
    serve: Callable[[Answers], str], answers: Answers, kind: str, software: str, contexts: Answers
) -> None:
    """At any of the addresses that users copy. A path that only a hosted API has stays."""
    address, own = serve(answers), "/api/v1" if answers is HOSTED else "/v1"
    for path in ("/api/v1",) if answers is HOSTED else ("", "/v1", "/v1/chat/completions"):
        found = detect_server(address + path, "OPENAI_API_KEY", 1.0)
        assert (found.kind, found.software, found.contexts) == (kind, software, contexts)
        if contexts:
            assert found.url == f"{address}{own}"


@pytest.mark.parametrize(
    ("answers", "words", "choice", "settings"),
    [
        (VLLM, "", "qwen3_8b", {"server": "vllm", "served_model": None, "context": 32768}),
        (VLLM, "model=Qwen/Qwen3-8B", "qwen3_8b", {"server": "vllm", "served_model": None}),
        (ADAPTED, "model.context=1024", "sim", {"name": "sim", "context": 1024}),
        (ADAPTED, "model=qwen3_8b engine.served_model=sim", "sim", {"name": "qwen3_8b", "served_model": "sim"}),
        (LLAMACPP, "", "tiny", {"server": "llamacpp", "name": "/models/tiny.gguf", "context": 4096}),
        (OLLAMA, "model=qwen3_8b", "qwen3_8b", {"served_model": "qwen3:8b", "server": "hosted", "context": 16384}),
        (OLLAMA, "model=llama3.2", "llama3.2", {"served_model": "llama3.2:latest"}),
        (SILENT, "model=any/name", "name", {"server": "hosted", "name": "any/name"}),
    ],
)
def test_server_and_model_in_two_words(
    serve: Callable[[Answers], str], answers: Answers, words: str, choice: str, settings: Answers
) -> None:
    experiment = Experiment.of(["method=no_context", f"server={serve(answers)}", *words.split()])
    chosen = {**experiment.config["model"], **experiment.config["engine"]}
    assert experiment.name("model") == choice
    assert {key: chosen[key] for key in settings} == settings
    assert experiment.run_folder().parent == outputs() / "demo" / "no_context" / choice
    assert experiment.identity["engine"]["server"] == chosen["server"]
    assert "server" not in experiment.config


@pytest.mark.parametrize(
    ("answers", "words", "message"),
    [
        (OLLAMA, "", r"serves 2 models. Choose one with model=NAME: llama3.2:latest, qwen3:8b\.$"),
        (
            OLLAMA,
            "model=qwen3_4b",
            r"model=qwen3_4b \(Qwen/Qwen3-4B\): .* does not serve it. Choose one with model=NAME",
        ),
        (ADAPTED, "model=qwen3_8b", r"serves only sim. Leave model= out to use that, or add engine.served_model=sim"),
        (ADAPTED, "engine.served_model=x", r"^engine.served_model=x: .* only sim. Leave engine.served_model= out"),
        (SILENT, "", "does not list its models. Name one: model=NAME"),
        (VLLM, "engine=vllm", r"engine=vllm: server=http.* already sets it. Remove engine=\."),
    ],
)
def test_open_choice_is_one_message(
    serve: Callable[[Answers], str], answers: Answers, words: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Experiment.of(["method=no_context", f"server={serve(answers)}", *words.split()])


def test_note_of_a_server_cannot_name_another_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    address = "http://127.0.0.1:9/v1"
    with serving(VLLM) as url:
        for given in (url, f"{url}/v1/models"):
            found = detect_server(given, "OPENAI_API_KEY", 1.0)
            assert last_seen_server(given) == found
        (note, _) = sorted(Path("outputs/.cache/servers").iterdir())
        seen = json.loads(note.read_bytes())
        for each in Path("outputs/.cache/servers").iterdir():
            each.write_text(json.dumps({**seen, "url": address}))
        assert last_seen_server(url) is None
    assert last_seen_server(address) is None


def test_finished_configuration_is_not_detected_again(
    serve: Callable[[Answers], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stored configuration is complete, so that a run can be read without its server. It can be in a file."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "conf" / "experiment" / "ours.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(f"# @package _global_\nserver: {serve(ADAPTED)}\nlimit: 3\n")
    words = ["method=no_context", "experiment=ours", "engine.concurrency=4"]
    experiment = Experiment.of(words)
    assert (experiment.name("model"), experiment.config["engine"]["concurrency"]) == ("sim", 4)
    file.unlink()
    assert Experiment.of(words, experiment.config).config == experiment.config
    with pytest.raises(EngineDied, match=r"http://127\.0\.0\.1:9 has not answered any call.*no connection"):
        detect_server("http://127.0.0.1:9", "OPENAI_API_KEY", 0.0)


def test_names_of_one_model() -> None:
    for requested, answered, expected in [
        ("gpt-4o", "gpt-4o", "same"),
        ("Qwen/Qwen3-8B", "qwen3-8b", "same"),
        ("qwen3:8b", "qwen3:8b:latest", "same"),
        ("/models/tiny.gguf", "tiny.gguf", "same"),
        ("openai/gpt-4o-mini", "gpt-4o-mini-2024-07-18", "snapshot"),
        ("claude-3-5-sonnet-latest", "claude-3-5-sonnet-20241022", "snapshot"),
        ("gpt-3.5-turbo", "gpt-3.5-turbo-0125", "snapshot"),
        ("gpt-4", "gpt-4-1106-preview", "snapshot"),
        ("gpt-4o", "gpt-4o-mini", "other"),
        ("gpt-4o-mini", "gpt-4o", "other"),
        ("gpt-4o", "gpt-4o-mini-2024-07-18", "other"),
        ("gpt-4o-2024-05-13", "gpt-4o-2024-08-06", "other"),
        ("llama-3.1-70b", "llama-3.1-8b", "other"),
        ("gpt-4", "gpt-4.1", "other"),
        ("my-alias", "azure/gpt-4o", "other"),
    ]:
        is_same = is_same_model(requested, answered)
        found = "same" if is_same else "snapshot" if is_snapshot(answered, requested) else "other"
        assert found == expected
