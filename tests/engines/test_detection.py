"""Test which kind of server and which models kgqa finds at an address. The servers answer as their software does."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kgqa.engines.openai import access, detection, transport
from kgqa.engines.openai.access import DEFAULT_URL, _name_receiver, find_key
from kgqa.engines.openai.detection import detect_server, is_same_model, is_snapshot
from kgqa.errors import ConfigError, EngineDied
from kgqa.experiment.composing import compose_experiment
from kgqa.experiment.identity import find_run_folder, identify
from kgqa.util.places import outputs
from tests.http_server import serve_json

pytest.importorskip("aiohttp", reason="engine openai needs aiohttp")
Answers = Mapping[str, Any]
Serve = Callable[[Answers], str]


def listing(owner: str, *names: str, **facts: Any) -> Any:
    return {
        "object": "list",
        "data": [{"id": name, "object": "model", "owned_by": owner, **facts} for name in names],
    }


TOKENS = {"tokens": [1], "count": 1}
QWEN = listing("vllm", "Qwen/Qwen3-8B", max_model_len=16384, parent=None)
VLLM = {"/v1/models": QWEN, "/version": {"version": "0.11.0"}, "/tokenize": TOKENS}
SERVED = [{"id": "sim", "owned_by": "vllm", "parent": None, "max_model_len": 2048}]
SERVED += [{"id": "safe", "owned_by": "vllm", "parent": "sim"}]
ADAPTED = {**VLLM, "/v1/models": {"data": SERVED}}
# a proxy that lets only /v1 through
PROXIED = {"/v1/models": QWEN}
SGLANG = {
    "/v1/models": listing("sglang", "Qwen/Qwen3-8B", max_model_len=40960),
    "/tokenize": TOKENS,
}
LLAMACPP = {
    "/v1/models": listing("llamacpp", "/models/tiny.gguf", meta={"n_ctx_train": 8192}),
    "/models": listing("llamacpp", "/models/tiny.gguf"),
    "/props": {"default_generation_settings": {"n_ctx": 4096}, "total_slots": 2},
    "/tokenize": TOKENS,
}
OLLAMA = {
    "/v1/models": listing("library", "qwen3:8b", "llama3.2:latest"),
    "/api/version": {"version": "0.13.0"},
    "/api/show": {
        "parameters": 'stop "<|im_end|>"\nnum_ctx 16384',
        "model_info": {"qwen3.context_length": 40960},
    },
}
MINE = listing("openai", "my-gpt")
LITELLM = {
    "/v1/models": MINE,
    "/models": MINE,
    "/health/readiness": {"status": "ok", "litellm_version": "1.80.0"},
}
# since 1.108 the version is elsewhere
NEW_LITELLM = {
    "/v1/models": MINE,
    "/models": MINE,
    "/health/readiness": {"status": "healthy", "db": "Not connected"},
    "/health/readiness/details": {"status": "healthy", "litellm_version": "1.108.7"},
}
HOSTED = {
    "/api/v1/models": {
        "data": [{"id": "qwen/qwen3-8b", "context_length": 40960}, {"id": "other/model"}]
    }
}
SILENT: Answers = {}
NOT_FOUND = (404, {"detail": "Not Found"})  # as FastAPI writes it


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    with ExitStack() as servers:
        yield lambda answers: servers.enter_context(
            serve_json(
                lambda request, _: (
                    (200, answers[request.path]) if request.path in answers else NOT_FOUND
                ),
                {},
            )
        )


@pytest.mark.parametrize(
    ("answers", "kind", "software", "contexts"),
    [
        (VLLM, "vllm", "vLLM 0.11.0", {"Qwen/Qwen3-8B": 16384}), (ADAPTED, "vllm", "vLLM 0.11.0", {"sim": 2048}),
        (PROXIED, "hosted", "vLLM behind a proxy that passes only /v1", {"Qwen/Qwen3-8B": 16384}),
        (SGLANG, "sglang", "SGLang", {"Qwen/Qwen3-8B": 40960}),
        (LLAMACPP, "llamacpp", "llama.cpp", {"/models/tiny.gguf": 4096}),
        (OLLAMA, "hosted", "Ollama 0.13.0", {"qwen3:8b": 16384, "llama3.2:latest": 16384}),
        (LITELLM, "hosted", "LiteLLM 1.80.0", {"my-gpt": None}),
        (NEW_LITELLM, "hosted", "LiteLLM 1.108.7", {"my-gpt": None}),
        (HOSTED, "hosted", "", {"qwen/qwen3-8b": 40960, "other/model": None}), (SILENT, "hosted", "", {}),
    ],
    ids=["vllm", "adapter", "proxied", "sglang", "llamacpp", "ollama", "litellm", "new litellm", "hosted", "silent"],
)  # fmt: skip
def test_kind_and_models_are_detected(
    serve: Serve, answers: Answers, kind: str, software: str, contexts: Answers
) -> None:
    """At any of the addresses that users copy. A path that only a hosted API has stays."""
    address, own = serve(answers), "/api/v1" if answers is HOSTED else "/v1"
    for path in ("/api/v1",) if answers is HOSTED else ("", "/v1", "/v1/chat/completions"):
        server = detect_server(address + path, "OPENAI_API_KEY", 1.0)
        assert (server.kind, server.software, server.contexts) == (kind, software, contexts)
        if contexts:
            assert server.url == f"{address}{own}"


def test_context_that_is_no_number_is_rejected(serve: Serve) -> None:
    words = ["method=no_context", f"server={serve(VLLM)}", "model.context=32k"]
    with pytest.raises(ConfigError, match=r"model\.context=32k: "):
        compose_experiment(words)


@pytest.mark.parametrize(
    ("answers", "words", "choice", "settings"),
    [
        (VLLM, "", "qwen3_8b", {"server": "vllm", "served_model": None, "context": 32768}),
        (VLLM, "model=Qwen/Qwen3-8B", "qwen3_8b", {"server": "vllm", "served_model": None}),
        (ADAPTED, "model.context=1024", "sim", {"name": "sim", "context": 1024}),
        (
            ADAPTED,
            "model=qwen3_8b engine.served_model=sim",
            "sim",
            {"name": "qwen3_8b", "served_model": "sim"},
        ),
        (
            LLAMACPP,
            "",
            "tiny",
            {"server": "llamacpp", "name": "/models/tiny.gguf", "context": 4096},
        ),
        (
            OLLAMA,
            "model=qwen3_8b",
            "qwen3_8b",
            {"served_model": "qwen3:8b", "server": "hosted", "context": 16384},
        ),
        (OLLAMA, "model=llama3.2", "llama3.2", {"served_model": "llama3.2:latest"}),
        (SILENT, "model=any/name", "name", {"server": "hosted", "name": "any/name"}),
    ],
)
def test_server_and_model_in_two_words(
    serve: Serve, answers: Answers, words: str, choice: str, settings: Answers
) -> None:
    experiment = compose_experiment(
        ["method=no_context", f"server={serve(answers)}", *words.split()]
    )
    config = {**experiment.config["model"], **experiment.config["engine"]}
    assert experiment.name("model") == choice
    assert {key: config[key] for key in settings} == settings
    assert find_run_folder(experiment).parent == outputs() / "demo" / "no_context" / choice
    assert identify(experiment)["answering"]["default"]["server"] == config["server"]
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
        (
            ADAPTED,
            "model=qwen3_8b",
            r"with model=NAME: sim\. If one of them is .* add engine.served_model=NAME",
        ),
        (
            ADAPTED,
            "engine.served_model=x",
            r"^engine.served_model=x: .* does not serve it. Choose one .*: sim\.",
        ),
        (SILENT, "", "does not list its models: 404 Not Found. Check the address"),
        (VLLM, "engine=vllm", r"engine=vllm: server=http.* already sets it. Remove engine=\."),
    ],
)
def test_open_choice_is_one_message(
    serve: Serve, answers: Answers, words: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        compose_experiment(["method=no_context", f"server={serve(answers)}", *words.split()])


CHAT = {"/v1/models": MINE, "/v1/chat/completions": {"error": {"message": "no messages"}}}
BOTH = {**CHAT, "/v1/completions": {"error": {"message": "no prompt"}}}


@pytest.mark.parametrize(
    ("answers", "words", "endpoints"),
    [
        pytest.param(CHAT, "", "chat", id="only chat"),
        pytest.param(BOTH, "", "both", id="both"),
        pytest.param({"/v1/models": MINE}, "", "both", id="neither"),
        pytest.param(CHAT, "engine.endpoints=both", "both", id="set by the user"),
        pytest.param({**PROXIED, **CHAT, **PROXIED}, "", "both", id="vllm behind a proxy"),
    ],
)
def test_server_without_completions_gets_chats(
    serve: Serve, answers: Answers, words: str, endpoints: str
) -> None:
    experiment = compose_experiment(
        ["method=no_context", f"server={serve(answers)}", *words.split()]
    )
    assert identify(experiment)["answering"]["default"]["endpoints"] == endpoints
    notes = [line for line in experiment.remarks if "engine.endpoints=chat" in line]
    assert len(notes) == (endpoints == "chat")


def test_finished_configuration_is_not_detected_again(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stored configuration is complete, so that a run can be read without its server. It can be in a file."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "conf" / "experiment" / "ours.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(f"# @package _global_\nserver: {serve(ADAPTED)}\nlimit: 3\n")
    words = ["method=no_context", "experiment=ours", "engine.concurrency=4"]
    experiment = compose_experiment(words)
    assert (experiment.name("model"), experiment.config["engine"]["concurrency"]) == ("sim", 4)
    file.unlink()
    assert compose_experiment(words, experiment.config).config == experiment.config
    with pytest.raises(EngineDied, match=r"http://127\.0\.0\.1:9 does not answer: no connection"):
        detect_server("http://127.0.0.1:9", "OPENAI_API_KEY", 0.0)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_closed_port_here_is_given_up_early(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "CLOSED_TIMEOUT", 0.1)
    url = re.escape(f"http://{host}:9")
    message = (
        rf"{url} has not answered any call for 0\.1 s: no connection .*engine\.server_timeout=600$"
    )
    with pytest.raises(EngineDied, match=message):
        detect_server(f"http://{host}:9", "OPENAI_API_KEY", None)


def test_refused_connection_elsewhere_is_given_up_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "CLOSED_TIMEOUT", 0.1)
    # as if the address were that of another machine
    monkeypatch.setattr(transport, "LOOPBACK", ())
    with pytest.raises(EngineDied, match=r"for 0\.1 s: .*engine\.server_timeout=600$"):
        detect_server("http://127.0.0.1:9", "OPENAI_API_KEY", None)


def test_silent_server_has_a_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(detection, "NOTICE", 0.01)
    monkeypatch.setattr(detection, "TIMEOUT", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(EngineDied):
            detect_server(url, "OPENAI_API_KEY", 0.0)
    warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert warnings == [f"{url}: no answer yet. This attempt ends after 0.5 s"]


NAMES = {
    "same": (
        "gpt-4o=gpt-4o Qwen/Qwen3-8B=qwen3-8b qwen3:8b=qwen3:8b:latest /models/tiny.gguf=tiny.gguf "
        "qwen2_5_coder_1_5b=Qwen/Qwen2.5-Coder-1.5B llama3_1_8b=Llama-3.1-8B"
    ),
    "snapshot": (
        "openai/gpt-4o-mini=gpt-4o-mini-2024-07-18 claude-3-5-sonnet-latest=claude-3-5-sonnet-20241022 "
        "gpt-3.5-turbo=gpt-3.5-turbo-0125 gpt-4=gpt-4-1106-preview"
    ),
    "other": (
        "gpt-4o=gpt-4o-mini gpt-4o-mini=gpt-4o gpt-4o=gpt-4o-mini-2024-07-18 llama-3.1-70b=llama-3.1-8b "
        "Qwen2.5-1.5B=Qwen2.5-15B command-r=command-r+ модель=образец модель=qwen "
        "gpt-4o-2024-05-13=gpt-4o-2024-08-06 gpt-4=gpt-4.1 my-alias=azure/gpt-4o"
    ),
}


@pytest.mark.parametrize(
    ("pair", "kind"), [(pair, kind) for kind, pairs in NAMES.items() for pair in pairs.split()]
)
def test_names_of_one_model(pair: str, kind: str) -> None:
    requested, answered = pair.split("=")
    is_same = is_same_model(requested, answered)
    assert kind == (
        "same" if is_same else "snapshot" if is_snapshot(answered, requested) else "other"
    )


@pytest.mark.parametrize(
    ("url", "variable", "line"),
    [
        ("http://gpu.example/v1", "OPENAI_API_KEY", "is sent to gpu.example without encryption"),
        ("http://gpu.example/v1", "OWN_KEY", "$OWN_KEY is sent to gpu.example without encryption"),
        ("https://other.example/v1", "OPENAI_API_KEY", "$OPENAI_API_KEY is sent to other.example"),
        ("https://other.example/v1", "OWN_KEY", ""),
        ("http://127.0.0.1:8000/v1", "OPENAI_API_KEY", ""),
        (DEFAULT_URL, "OPENAI_API_KEY", ""),
    ],
)
def test_receiver_of_a_key_is_named_once(
    url: str,
    variable: str,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv(variable, "sk-abc")
    _name_receiver.cache_clear()
    assert [find_key(variable, url) for _ in range(2)] == ["sk-abc", "sk-abc"]
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == bool(line)
    assert line in "".join(messages)
    assert "sk-abc" not in "".join(messages)
