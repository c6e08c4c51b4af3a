"""`kgqa view`: serve runs and sweeps to the browser."""

from __future__ import annotations

import webbrowser
from argparse import Namespace
from pathlib import Path

from kgqa.cli.terminal import Terminal
from kgqa.errors import ConfigError
from kgqa.extras.viewer.server import PORT, serve
from kgqa.util.places import outputs


def view(args: Namespace, terminal: Terminal) -> None:
    """Serve the local web app until Ctrl-C."""
    port = PORT if args.port is None else args.port
    if not 0 <= port < 65536:
        raise ConfigError(f"--port {port}: must be from 0 to 65535")
    folder = Path(args.positionals[0]) if args.positionals else outputs()

    def announce(address: str) -> None:
        terminal.line(f"{address}\nreading {folder}. Stop with Ctrl-C")
        if not args.no_browser:
            webbrowser.open(address)

    try:
        with terminal.own_screen():
            serve(folder, port, announce)
    except KeyboardInterrupt:
        terminal.line("")
