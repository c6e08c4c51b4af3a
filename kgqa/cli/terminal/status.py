"""Running work as a table."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from kgqa.cli.terminal.console import Terminal
from kgqa.runtime.heartbeat import Heartbeat

_COLUMNS = ("work", "stage", "done", "failed", "per minute", "tokens/s", "left", "paid", "for")


def show_status(beats: Sequence[Heartbeat], terminal: Terminal) -> None:
    """Show running work as a table, and below it how to continue work that stopped."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in _COLUMNS:
        text = heading in ("work", "stage")
        table.add_column(heading, justify="left" if text else "right", no_wrap=not text, overflow="fold")
    for beat in beats:
        table.add_row(*map(escape, _row(beat)))
    if beats:
        terminal.show(table)
    else:
        terminal.line("nothing runs in outputs/; kgqa runs lists what has run")
    for beat in beats:
        if not beat.is_running:
            saved = f"its answers are saved in {beat.folder} and the call cache"
            hint = f"; continue with: {beat.command}" if beat.command else ""
            terminal.line(f"process {beat.pid} on {beat.host} stopped: {saved}{hint}", alarm=True)


def _row(beat: Heartbeat) -> tuple[str, ...]:
    done = f"{beat.ended:,}" if beat.count is None else f"{beat.ended:,} of {beat.count:,}"
    return (
        f"{beat.what} {beat.folder}" + ("" if beat.describe() == "running" else f"\n{beat.describe()}"),
        beat.stage,
        done if beat.stage else "",
        f"{beat.failed:,}" if beat.failed else "",
        "" if beat.per_minute is None else f"{beat.per_minute:,.1f}",
        "" if beat.tokens_per_second is None else f"{beat.tokens_per_second:,.0f}",
        "" if beat.seconds_left is None else _duration(beat.seconds_left),
        f"{beat.tokens:,} tokens" + ("" if beat.usd is None else f", {beat.usd:.4f} USD"),
        _duration(time.time() - beat.started),
    )


def _duration(seconds: float) -> str:
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
