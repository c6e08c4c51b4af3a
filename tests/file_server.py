"""A real HTTP server of one file, which can cut its replies or refuse."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from tests.http_server import serve


@dataclass
class Behaviour:
    """How the server answers. Its lists have one entry per reply, and end with ordinary replies."""

    content: bytes = b""
    cut_after: list[int] = field(default_factory=list)  # bytes sent
    statuses: list[int] = field(default_factory=list)  # in place of the file
    # a reply stalls in the middle until this is set
    silence: threading.Event | None = None
    requests: int = 0
    url: str = ""


class Handler(BaseHTTPRequestHandler):
    behaviour: Behaviour

    def do_GET(self) -> None:
        behaviour = self.behaviour
        behaviour.requests += 1
        if self.path != "/file" or behaviour.statuses:
            self.send_error(behaviour.statuses.pop(0) if behaviour.statuses else 404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(behaviour.content)))
        self.end_headers()
        self.wfile.write(
            behaviour.content[: behaviour.cut_after.pop(0) if behaviour.cut_after else None]
        )
        self.wfile.flush()
        if behaviour.silence is not None:
            behaviour.silence.wait(10)
        self.close_connection = True


@contextmanager
def serving(behaviour: Behaviour) -> Iterator[Behaviour]:
    """Serve on a free port of this machine; `behaviour.url` is the file's."""
    with serve(type("Bound", (Handler,), {"behaviour": behaviour})) as url:
        behaviour.url = f"{url}/file"
        yield behaviour
