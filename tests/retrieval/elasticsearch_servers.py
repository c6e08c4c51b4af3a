"""Servers for the tests of `retriever=elasticsearch`, all on 127.0.0.1.

`StandIn` is noida-db, a small re-implementation that speaks Elasticsearch's HTTP interface. It is not Elasticsearch:
the same tests run against a real one if KGQA_TEST_ES_URL names it. `Faulty` answers what no healthy server would.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from importlib.resources import files
from pathlib import Path
from typing import Any


@dataclass
class StandIn:
    """A noida-db process with its documents in `folder`; it can be stopped and started again on the same port."""

    folder: Path
    port: int = field(default_factory=lambda: _free_port())
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        options = [
            "--only",
            "elasticsearch",
            "--elasticsearch-port",
            str(self.port),
            "--data-dir",
            str(self.folder),
        ]
        # Not by its script, which would start the program as a process of its own that outlives a stop.
        program = Path(str(files("noida_db") / "noida-db"))
        program.chmod(0o755)
        self.process = subprocess.Popen(
            [str(program), "start", *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for _ in range(200):
            if self._answers():
                return
            time.sleep(0.05)
        raise TimeoutError("the stand-in did not start within 10 s")

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(10)
            self.process = None

    def _answers(self) -> bool:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=1)
        try:
            connection.request("GET", "/_cluster/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


HEADERS = {"X-Elastic-Product": "Elasticsearch", "Content-Type": "application/json"}


@dataclass
class Faulty:
    """Answers each request with the reply of the first key its "METHOD path" starts with, else with `{}` and 200."""

    replies: Mapping[str, tuple[int, Any]] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=lambda: dict(HEADERS))
    requests: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)

    def reply(self, request: str) -> tuple[int, Any]:
        return next(
            (reply for key, reply in self.replies.items() if request.startswith(key)), (200, {})
        )

    def answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, Any]:
        request = f"{handler.command} {handler.path}"
        self.requests.append((request, dict(handler.headers)))
        return self.reply(request)
