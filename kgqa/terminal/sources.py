"""What `kgqa data list` shows."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from kgqa.experiment.data import place_of, sources
from kgqa.terminal.console import Terminal


def show_sources(terminal: Terminal) -> None:
    """Every data set and corpus, where it comes from, and what of it is here."""
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
