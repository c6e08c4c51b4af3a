"""The web server of the viewer: its port, its token, and who can reach it.

Only a browser with the token can reach it, at this address, and from the viewer's own pages.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kgqa.errors import ConfigError
from kgqa.extras.viewer.application import HOME, Viewer
from kgqa.util.optional_deps import require_packages

if TYPE_CHECKING:
    from starlette.middleware.base import RequestResponseEndpoint
    from starlette.requests import Request
    from starlette.responses import Response

HOST = "127.0.0.1"
PORT = 8744
SHUTDOWN_SECONDS = 1  # for open connections
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
REFUSED = (
    "kgqa view: open the address that the command printed. It contains the token for these pages\n"
)


@dataclass(frozen=True)
class TokenGuard:
    """Rejects requests without the token, which is in the first address, then in a cookie. `HOME` has nothing to hide.

    Other sites cannot send the cookie (SameSite), and a host name that resolves to 127.0.0.1 (DNS rebinding) is not
    one of the accepted hosts.
    """

    token: str
    port: int

    async def __call__(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        from starlette.responses import PlainTextResponse

        # cookies of two viewers share the host
        cookie = f"kgqa_view_{self.port}"
        is_first = self._is_token(request.query_params.get("token", ""))
        is_allowed = is_first or self._is_token(request.cookies.get(cookie, ""))
        if self._is_own_request(request) and (is_allowed or request.url.path == HOME):
            response = await call_next(request)
        else:
            is_first, response = False, PlainTextResponse(REFUSED, 403)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        if is_first:
            response.headers["set-cookie"] = (
                f"{cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict"
            )
        return response

    def _is_token(self, text: str) -> bool:
        return secrets.compare_digest(text.encode(), self.token.encode())

    def _is_own_request(self, request: Request) -> bool:
        """Return whether host and origin are this address. A request that changes something must have an origin."""
        host, origin = request.headers.get("host", ""), request.headers.get("origin", "")
        if host not in (f"127.0.0.1:{self.port}", f"localhost:{self.port}"):
            return False
        return origin == f"http://{host}" if origin else request.method in ("GET", "HEAD")


def serve(root: Path, port: int, announce: Callable[[str], None]) -> None:
    """Serve the viewer until Ctrl-C.

    Args:
        root: the folder of runs that is shown.
        port: 0 for any free one.
        announce: called with the address, with its token, when the port is open.

    Raises ConfigError: the extra is missing, or the port is in use. DataError: there is no such folder.
    KeyboardInterrupt: the user ended it.
    """
    require_packages("view", "starlette", "uvicorn")
    import uvicorn
    from starlette.middleware.base import BaseHTTPMiddleware

    viewer = Viewer(root)
    try:
        listening = socket.create_server((HOST, port))
    except OSError as error:
        raise ConfigError(
            f"--port {port}: {os.strerror(error.errno or 0)}. Use another one, or 0 for any free port"
        ) from None
    with listening:
        port, token = listening.getsockname()[1], secrets.token_urlsafe(24)
        # cut connections at the end are no errors
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        config = uvicorn.Config(
            BaseHTTPMiddleware(viewer.application(), dispatch=TokenGuard(token, port)),
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        announce(f"http://{HOST}:{port}/?token={token}")
        uvicorn.Server(config).run(sockets=[listening])
