"""Who may ask the viewer: one browser that was given the token, at this address and from its own pages."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Application = Callable[[Any, Receive, Send], Awaitable[None]]
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = (
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
)
REFUSED = "kgqa view: open the address that the command printed; it holds the token that this page asks for\n"


@dataclass(frozen=True)
class Guard:
    """Around an application: what is refused never gets there. The token is in the first address, then in a cookie.

    A page of another site can send a browser here, but not with the cookie (SameSite), nor under a name of its own
    that it points at 127.0.0.1 (DNS rebinding): such a request names another host.
    """

    application: Application
    token: str
    port: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"  # nothing else is started: no lifespan, no web sockets
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[-1]
        first = secrets.compare_digest(given.encode(), self.token.encode())
        if not self._is_meant(scope) or not (first or self._has_cookie(scope)):
            await _refuse(send)
            return

        async def guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in HEADERS]
                if first:
                    cookie = f"{self._cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict"
                    own.append((b"set-cookie", cookie.encode()))
                message = {**message, "headers": [*message.get("headers", ()), *own]}
            await send(message)

        await self.application(scope, receive, guarded)

    @property
    def _cookie(self) -> str:
        """Cookies are of a host, whatever the port: two viewers have two."""
        return f"kgqa_view_{self.port}"

    def _is_meant(self, scope: Scope) -> bool:
        """Asked at this address, and from nowhere else; what changes something says where it comes from."""
        hosts = {f"127.0.0.1:{self.port}", f"localhost:{self.port}"}
        host, origin = _header(scope, b"host"), _header(scope, b"origin")
        if host not in hosts:
            return False
        return origin == f"http://{host}" if origin or scope["method"] not in ("GET", "HEAD") else True

    def _has_cookie(self, scope: Scope) -> bool:
        try:
            kept = SimpleCookie(_header(scope, b"cookie")).get(self._cookie)
        except CookieError:
            return False
        return kept is not None and secrets.compare_digest(kept.value.encode(), self.token.encode())


def _header(scope: Scope, name: bytes) -> str:
    values = [value.decode("latin-1") for key, value in scope["headers"] if key == name]
    return values[0] if len(values) == 1 else ""


async def _refuse(send: Send) -> None:
    body = REFUSED.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    headers += [(name.encode(), value.encode()) for name, value in HEADERS]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": body})
