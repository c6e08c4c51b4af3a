"""The viewer's server: its port, its token, and how it begins and ends."""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass

from kgqa.errors import ConfigError
from kgqa.extras import installed
from kgqa.viewer.application import Viewer
from kgqa.viewer.choices import Choices
from kgqa.viewer.folder import Folder
from kgqa.viewer.guard import Guard

HOST = "127.0.0.1"
PORT = 8744
PATIENCE = 1  # seconds that open connections have when it ends


@dataclass(frozen=True)
class Request:
    """port: 0 for any that is free. opened: called with the address once it can be asked."""

    choices: Choices
    port: int
    opened: Callable[[str], None]


def serve(request: Request) -> None:
    """Serve until the process is interrupted.

    Raises:
        ConfigError: the extra is missing, or the port is taken.
        DataError: there is no such folder.
        KeyboardInterrupt: the end.
    """
    installed("view", "starlette", "uvicorn")
    folder = Folder(request.choices.root)
    with _bound(request.port) as listening:
        port = listening.getsockname()[1]
        token = secrets.token_urlsafe(24)
        viewer = Viewer(folder, request.choices)
        _run(viewer, token, listening, lambda: request.opened(f"http://{HOST}:{port}/?token={token}"))


def _run(viewer: Viewer, token: str, listening: socket.socket, opened: Callable[[], None]) -> None:
    import uvicorn

    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # a stream that is cut at the end is no trouble
    guard = Guard(viewer.application(), token, listening.getsockname()[1])
    config = uvicorn.Config(
        guard,
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=PATIENCE,
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            opened()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            viewer.close()
            await super().shutdown(sockets)
            if (
                self.server_state.tasks
            ):  # a comparison still computes in a thread that cannot be stopped; it keeps nothing
                os._exit(0)

    server = Server(config)
    server.run(sockets=[listening])


def _bound(port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((HOST, port))
        bound.listen(128)
    except OSError as error:
        bound.close()
        raise ConfigError(f"--port {port}: {error.strerror}; give another, or 0 for any that is free") from None
    return bound
