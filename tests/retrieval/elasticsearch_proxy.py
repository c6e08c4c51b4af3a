"""A proxy before a server, which lets through what a role allows and adds the warnings of a server's settings."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

# of "METHOD path": what Elasticsearch's privileges `read` and `view_index_metadata` on kgqa-* allow
READING = re.compile(r"(GET|POST) /kgqa-\w+/(_count|_search|_msearch|_mapping)\b")
FORBIDDEN = {"error": {"type": "security_exception", "reason": "action is unauthorized for user"}, "status": 403}


@dataclass
class Proxy:
    server: str
    allowed: re.Pattern[str] = re.compile("")
    warning: str = ""
    refused: list[str] = field(default_factory=list)
    url: str = ""


@contextmanager
def proxied(proxy: Proxy) -> Iterator[Proxy]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            request = f"{self.command} {self.path}"
            if not proxy.allowed.match(request):
                proxy.refused.append(request)
                self.give(403, "application/json", json.dumps(FORBIDDEN).encode())
                return
            connection = HTTPConnection(urlsplit(proxy.server).netloc, timeout=20)
            connection.request(self.command, self.path, asked, dict(self.headers))
            reply = connection.getresponse()
            self.give(reply.status, reply.headers["Content-Type"] or "application/json", reply.read())
            connection.close()

        do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815 - names of the standard library

        def give(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("X-Elastic-Product", "Elasticsearch")
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            if proxy.warning:
                self.send_header("Warning", proxy.warning)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Tests print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    proxy.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
