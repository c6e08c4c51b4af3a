"""The web server of the viewer: its port, its token, and who can reach it.

Only a browser with the token can reach it, at this address, and from the viewer's own pages.
"""

from __future__ import annotations

import logging
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from kgqa.errors import ConfigError
from kgqa.util.optional_deps import require_packages
from kgqa.viewer.application import Viewer
from kgqa.viewer.ask_tab import Choices
from kgqa.viewer.folder import Folder

HOST = "127.0.0.1"
PORT = 8744
SHUTDOWN_SECONDS = 1  # for open connections
Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Application = Callable[[Any, Receive, Send], Awaitable[None]]
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
REFUSED = "kgqa view: open the address that the command printed. It contains the token for these pages\n"


@dataclass(frozen=True)
class Guard:
    """Wraps an application and rejects requests without the token, which is in the first address, then in a cookie.

    Other sites cannot send the cookie (SameSite), and a host name that resolves to 127.0.0.1 (DNS rebinding) is not
    one of the accepted hosts.
    """

    application: Application
    token: str
    port: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"  # the server has no lifespan and no web sockets
        token = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[-1]
        first = secrets.compare_digest(token.encode(), self.token.encode())
        if not self._is_own_request(scope) or not (first or self._has_cookie(scope)):
            await _reject(send)
            return

        async def send_guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                set_already = {name for name, _ in message.get("headers", ())}
                own = [(name, value) for name, value in HEADERS if name not in set_already]
                if first:
                    cookie = f"{self._cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict"
                    own.append((b"set-cookie", cookie.encode()))
                message = {**message, "headers": [*message.get("headers", ()), *own]}
            await send(message)

        await self.application(scope, receive, send_guarded)

    @property
    def _cookie(self) -> str:
        """Return a name with the port, because cookies of two viewers share the host."""
        return f"kgqa_view_{self.port}"

    def _is_own_request(self, scope: Scope) -> bool:
        """Return whether host and origin are this address. A request that changes something must have an origin."""
        hosts = {f"127.0.0.1:{self.port}", f"localhost:{self.port}"}
        host, origin = _header(scope, b"host"), _header(scope, b"origin")
        if host not in hosts:
            return False
        return origin == f"http://{host}" if origin or scope["method"] not in ("GET", "HEAD") else True

    def _has_cookie(self, scope: Scope) -> bool:
        try:
            cookie = SimpleCookie(_header(scope, b"cookie")).get(self._cookie)
        except CookieError:
            return False
        return cookie is not None and secrets.compare_digest(cookie.value.encode(), self.token.encode())


def _header(scope: Scope, name: bytes) -> str:
    values = [value.decode("latin-1") for key, value in scope["headers"] if key == name]
    return values[0] if len(values) == 1 else ""


async def _reject(send: Send) -> None:
    body = REFUSED.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    headers += HEADERS
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def serve(choices: Choices, port: int, announce: Callable[[str], None]) -> None:
    """Serve the viewer until Ctrl-C.

    Args:
        port: 0 for any free one.
        announce: called with the address, with its token, when the port is open.

    Raises:
        ConfigError: the extra is missing, or the port is in use.
        DataError: there is no such folder.
        KeyboardInterrupt: the user ended it.
    """
    require_packages("view", "starlette", "uvicorn")
    import uvicorn

    viewer = Viewer(Folder(choices.root), choices)
    with _open_port(port) as listening:
        port = listening.getsockname()[1]
        token = secrets.token_urlsafe(24)
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # cut connections at the end are no errors
        config = uvicorn.Config(
            Guard(viewer.application(), token, port),
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        announce(f"http://{HOST}:{port}/?token={token}")
        try:
            uvicorn.Server(config).run(sockets=[listening])
        finally:
            viewer.close()


def _open_port(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, port))
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise ConfigError(f"--port {port}: {error.strerror}. Use another one, or 0 for any free port") from None
    return listening
