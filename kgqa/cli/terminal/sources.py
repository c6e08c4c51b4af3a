"""Table of `kgqa data list`."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from kgqa.cli.terminal.console import Terminal
from kgqa.experiment.data import place_of, sources


def show_sources(terminal: Terminal) -> None:
    """Show every dataset and corpus with its source and local copy."""
    table = Table(show_lines=True)
    for heading in ("dataset=", "what it is", "licence and source", "bytes, sha256", "here"):
        table.add_column(heading, overflow="fold")
    for name, source in sources().items():
        size = "size not known" if source.bytes is None else f"{source.bytes:,}"
        checksum = "checksum not known" if source.sha256 is None else source.sha256
        origin = "\n".join([source.licence, source.page, *source.urls])
        shown = f"{origin}\non the hub: {source.hub.id}" if source.hub else origin
        table.add_row(*map(escape, (name, source.content, shown, f"{size}\n{checksum}", place_of(name, source))))
    terminal.console.print(table)
