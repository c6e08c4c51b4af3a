"""What the hub's own library throws becomes one line: asked of a server of our own that refuses in its ways."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.http_server import serve

pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")

ASKING = """
from kgqa.util import hub
from kgqa.errors import ConfigError
for ask in (hub.identify_weights, hub.fetch_encoder):
    try:
        print(ask("owner/encoder"))
    except ConfigError as error:
        print(error)
snapshot = hub.find_snapshot("owner/encoder", ["*.json"], local=False)
print(snapshot, hub.find_file("owner/encoder", "config.json", local=False))
"""


@contextmanager
def refusing(status: int, code: str) -> Iterator[str]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET  # noqa: N815 - a name of the standard library

    with serve(Answer) as url:
        yield url


def lines(endpoint: str, home: Path, *, offline: bool = False) -> list[str]:
    """What `ASKING` prints in a process of its own: the library reads these variables when it is imported."""
    named = {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_OFFLINE": str(int(offline))}
    environment = {**os.environ, **named, "PYTHONPATH": str(Path(__file__).parents[2])}
    ran = subprocess.run(
        [sys.executable, "-c", ASKING], env=environment, cwd=home, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in ran.stderr, ran.stderr
    *refused, had = ran.stdout.splitlines()
    assert had == "None None"
    return refused


@pytest.mark.parametrize(
    ("status", "code", "remedy"),
    [
        (403, "GatedRepo", "Accept its terms on the hub and run hf auth login, or name a folder"),
        (401, "RepoNotFound", "Check its name, run hf auth login if it is private, or name a folder"),
        (400, "", "Connect this machine, copy the model into its hub cache, or name a folder"),
    ],
)
def test_a_refusal_of_the_hub_says_what_to_do(status: int, code: str, remedy: str, tmp_path: Path) -> None:
    with refusing(status, code) as endpoint:
        refused = lines(endpoint, tmp_path)
    assert len(refused) == 2
    for line in refused:
        assert line.startswith("model=owner/encoder: not available from the hub (")
        assert remedy in line


def test_a_hub_that_cannot_be_reached_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        refused = lines(f"http://127.0.0.1:{closed.getsockname()[1]}", tmp_path)
    assert len(refused) == 2
    for line in refused:
        assert line.startswith("model=owner/encoder: not available from the hub (")
        assert "onnect" in line
        assert "name a folder" in line


def test_offline_the_hub_is_not_asked(tmp_path: Path) -> None:
    with refusing(500, "") as endpoint:
        refused = lines(endpoint, tmp_path, offline=True)
    assert len(refused) == 2
    assert all("HF_HUB_OFFLINE forbids the download. Unset it, or name a folder" in line for line in refused)
