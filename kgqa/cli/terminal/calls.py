"""Tables of `kgqa cache stats`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from kgqa.cache.maintenance import Share
from kgqa.cli.terminal.console import Terminal


def show_calls(shares: Sequence[Share], folder: Path, terminal: Terminal) -> None:
    """Show calls by engine, model and kind, with their sum."""
    table = Table("answered by", "model", "kind", "calls", "bytes", "oldest", "newest")
    for share in shares:
        named = [share.engine or "not noted", share.model, share.kind]
        table.add_row(
            *map(escape, named), f"{share.calls:,}", f"{share.bytes:,}", *map(_day, (share.oldest, share.newest))
        )
    terminal.show(table)
    calls, size = sum(share.calls for share in shares), sum(share.bytes for share in shares)
    terminal.line(f"{folder}: {calls:,} calls, {size:,} bytes")


def _day(seconds: int | None) -> str:
    return "–" if seconds is None else datetime.fromtimestamp(seconds).strftime("%Y-%m-%d")
