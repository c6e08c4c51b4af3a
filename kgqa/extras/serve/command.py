"""`kgqa serve`: models and search over HTTP, for agents and for other machines."""

from __future__ import annotations

from argparse import Namespace

from kgqa.cli.terminal import Terminal
from kgqa.extras.serve.server import HOST, LOCAL
from kgqa.extras.serve.serving import compose_server
from kgqa.extras.serve.serving import serve as run_server
from kgqa.util.text import pluralize

PORT = 8745


def serve(args: Namespace, terminal: Terminal) -> None:
    """Serve until Ctrl-C."""
    experiment = compose_server(args.overrides)

    def announce(address: str, token: str) -> None:
        base = address if host in LOCAL else f"{address}/s/{token}"
        uses = experiment.method.uses
        if "model" in uses:
            terminal.line(f"OPENAI_BASE_URL={base}/v1")
        if "search" in uses:
            terminal.line(f"RETRIEVE_URL={base}/retrieve")
        if host not in LOCAL:
            terminal.line(
                "Other machines can reach this server. The address contains its token: keep it secret."
            )
        terminal.line("Stop the server with Ctrl-C.")

    host = args.host or HOST
    port = PORT if args.port is None else args.port
    ledger = run_server(experiment, terminal, host, port, announce, is_stdio=args.stdio)
    new = ledger.answered.total() - ledger.hits.total()
    terminal.line(
        f"{pluralize(ledger.answered.total(), 'call')}, {new:,} new, {ledger.spent().tokens:,} new tokens"
    )
