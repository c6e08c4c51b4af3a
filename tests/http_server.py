"""A real HTTP server on a free port of this machine, for one test."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print a traceback, except for a client that hangs up: tests kill and interrupt clients."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def serve(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Yield the address, without a slash at its end. Nothing is printed."""
    silent = type("Silent", (handler,), {"log_message": lambda *_: None})
    server = Server(("127.0.0.1", 0), silent)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def serve_json(
    answer: Callable[[BaseHTTPRequestHandler, bytes], tuple[int, Any]], headers: Mapping[str, str]
) -> Any:
    """Serve what `answer` makes of a request and its body, a status and a value."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, value = answer(
                self, self.rfile.read(int(self.headers.get("Content-Length") or 0))
            )
            content = b"" if self.command == "HEAD" else json.dumps(value).encode()
            self.send_response(status)
            for name, text in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_PUT = do_HEAD = do_DELETE = do_GET  # noqa: N815 - names of the standard library

    return serve(Handler)
