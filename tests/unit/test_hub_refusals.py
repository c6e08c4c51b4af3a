"""What the hub's own library throws becomes one line: asked of a server of our own that refuses in its ways."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.http_server import serve

pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")

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
    snapshot = hub.find_snapshot(name, ["*.json"], local=False)
    assert snapshot is hub.find_file(name, "config.json", local=False) is None
for name in os.environ["ASKED"].split():
    ask(name)
os.environ["HF_HUB_OFFLINE"] = "1"
ask("owner/offline")
"""
# by name of the model: how the server refuses
REFUSALS = {"owner/gated": (403, "GatedRepo"), "owner/private": (401, "RepoNotFound"), "owner/broken": (400, "")}


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
    named = {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0", "ASKED": " ".join(names)}
    environment = {**os.environ, **named, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", ASKING]
    ran = subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, check=True)
    return ran.stdout.splitlines()


def test_a_refusal_of_the_hub_says_what_to_do(tmp_path: Path) -> None:
    with serve(Refusing) as endpoint:
        *refused, first, second = ask(endpoint, tmp_path, *REFUSALS)
    for place, name in enumerate(REFUSALS):
        for line in refused[2 * place : 2 * place + 2]:
            assert line.startswith(f"model={name}: not available from the hub (")
            assert "check the name, accept the licence on the hub, and set HF_TOKEN, or name a folder" in line
    assert len(refused) == 6
    for line in (first, second):
        assert "unset HF_HUB_OFFLINE, or name a folder" in line


def test_a_hub_that_cannot_be_reached_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        refused = ask(f"http://127.0.0.1:{closed.getsockname()[1]}", tmp_path, "owner/encoder")
    assert len(refused) == 4
    for line in refused[:2]:
        assert line.startswith("model=owner/encoder: not available from the hub: ")
        assert "onnect" in line
        assert "name a folder" in line
