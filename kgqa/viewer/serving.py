"""The web server of the viewer: its port, its token, its start and its end."""

from __future__ import annotations

import logging
import secrets
import socket
from collections.abc import Callable

from kgqa.errors import ConfigError
from kgqa.util.optional_deps import require_packages
from kgqa.viewer.application import Viewer
from kgqa.viewer.ask_tab import Choices
from kgqa.viewer.folder import Folder
from kgqa.viewer.guard import Guard

HOST = "127.0.0.1"
PORT = 8744
SHUTDOWN_SECONDS = 1  # for open connections


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
        raise ConfigError(f"--port {port}: {error.strerror}; use another one, or 0 for any free port") from None
    return listening
