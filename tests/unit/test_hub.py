"""Models by name: asked of the hub only where that may be, and its refusals, each of which becomes one line."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kgqa.util import hub
from kgqa.util import optional_deps as extras
from tests.http_server import serve


class Absent(OSError):
    """What the hub's library says."""


@pytest.fixture
def hub_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The hub's library in place of the real one. It has owner/model only, which is in its cache. Its calls."""
    calls: list[dict[str, Any]] = []

    def download(repository: str, *names: str, **options: Any) -> str:
        calls.append(options)
        if repository != "owner/model":
            raise Absent(f"no {repository}\nand a page of advice")
        return "/".join(("/cache", repository, *names))

    library, errors, constants = (
        ModuleType(f"huggingface_hub{part}") for part in ("", ".errors", ".constants")
    )
    (tmp_path / "models--owner--model").mkdir()
    vars(constants).update(HF_HUB_CACHE=str(tmp_path))
    information = SimpleNamespace(model_info=lambda name: SimpleNamespace(sha="abc"))
    vars(library).update(
        hf_hub_download=download, snapshot_download=download, HfApi=lambda: information
    )
    vars(errors).update(EntryNotFoundError=Absent, HfHubHTTPError=Absent)
    library.errors = errors  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", library)
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", errors)
    monkeypatch.setitem(sys.modules, "huggingface_hub.constants", constants)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(hub, "is_reachable", lambda: True)
    return calls


def test_snapshot_has_files_of_the_patterns(
    hub_requests: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hub.find_weights("owner/model", ("*.json",), local=False) == Path("/cache/owner/model")
    assert hub_requests == [
        {"allow_patterns": ["*.json"], "ignore_patterns": "*/*", "local_files_only": False}
    ]
    assert hub.find_weights("owner/model:a.gguf", (), local=True) == Path(
        "/cache/owner/model/a.gguf"
    )
    assert hub.find_weights("owner/other:a.gguf", (), local=True) is None
    # the library is not called for a repository that is not in its cache
    assert len(hub_requests) == 2
    monkeypatch.setenv("HF_HUB_OFFLINE", "true")
    assert hub.is_offline()
    hub_requests.clear()
    assert hub.find_weights("owner/model", ("*",), local=False) is None
    assert not hub_requests
    assert hub.find_weights("owner/model", ("*",), local=True) is not None
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # not installed
    assert hub.find_weights("owner/model:a.gguf", (), local=True) is None


def test_closed_port_fails_without_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **options: object) -> None:
        raise OSError

    monkeypatch.setattr(hub, "REACH", 3600)
    monkeypatch.setattr("socket.create_connection", refuse)
    hub.is_reachable.cache_clear()
    assert not hub.is_reachable()
    hub.is_reachable.cache_clear()


def test_encoder_is_identified_by_its_files(tmp_path: Path) -> None:
    for place in ("here", "there"):
        (tmp_path / place / "deep").mkdir(parents=True)
        (tmp_path / place / "config.json").write_text("{}")
        (tmp_path / place / "deep" / "vocab.txt").write_text("a")
        (tmp_path / place / "README.md").write_text(place)
    weights = hub.identify_weights(str(tmp_path / "here"))
    assert weights == hub.identify_weights(str(tmp_path / "there"))
    (tmp_path / "there" / "deep" / "vocab.txt").write_text("ab")
    assert weights != hub.identify_weights(str(tmp_path / "there"))
    assert hub.fetch_encoder(str(tmp_path / "here")) == tmp_path / "here"


def test_an_engine_lacks_what_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "LIBRARIES", {"one": ("json", "kgqa_has_no_such_package")})
    assert (extras.missing_libraries("one"), extras.missing_libraries("scripted")) == (
        ["kgqa_has_no_such_package"],
        [],
    )


ASKING = """
import os
from kgqa.util import hub
from kgqa.errors import ConfigError
def ask(name):
    for asked in (hub.identify_weights, hub.fetch_encoder):
        try:
            print(asked(name))
        except ConfigError as error:
            print(error)
    assert all(hub.find_weights(place, ["*.json"], local=False) is None for place in (name, f"{name}:config.json"))
for name in os.environ["ASKED"].split():
    ask(name)
os.environ["HF_HUB_OFFLINE"] = "1"
ask("owner/offline")
"""
# by name of the model: how the server refuses
REFUSALS = {
    "owner/gated": (403, "GatedRepo"),
    "owner/private": (401, "RepoNotFound"),
    "owner/broken": (400, ""),
}


class Refusing(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status, code = next(refusal for name, refusal in REFUSALS.items() if name in self.path)
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET  # noqa: N815 - a name of the standard library


def ask(endpoint: str, home: Path, *names: str) -> list[str]:
    """Return what `ASKING` prints in a process of its own: the library reads these variables when it is imported."""
    pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    named = {
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(home),
        "HF_HUB_OFFLINE": "0",
        "ASKED": " ".join(names),
    }
    environment = {**os.environ, **named, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", ASKING]
    ran = subprocess.run(
        command, env=environment, cwd=home, capture_output=True, text=True, check=True
    )
    return ran.stdout.splitlines()


def test_a_refusal_of_the_hub_says_what_to_do(tmp_path: Path) -> None:
    with serve(Refusing) as endpoint:
        *refused, first, second = ask(endpoint, tmp_path, *REFUSALS)
    names = [name for name in REFUSALS for _ in range(2)]
    assert [line.partition(" (")[0] for line in refused] == [
        f"model={name}: not available from the hub" for name in names
    ]
    fix = "check the name, accept the license on the hub, and set HF_TOKEN, or name a folder"
    assert [line for line in refused if fix not in line] == []
    assert "unset HF_HUB_OFFLINE, or name a folder" in first
    assert "unset HF_HUB_OFFLINE, or name a folder" in second


def test_a_hub_that_cannot_be_reached_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        refused = ask(f"http://127.0.0.1:{closed.getsockname()[1]}", tmp_path, "owner/encoder")
    assert len(refused) == 4
    message = r"model=owner/encoder: not available from the hub: .*onnect.*name a folder"
    assert [line for line in refused[:2] if not re.match(message, line)] == []
