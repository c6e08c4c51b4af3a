"""What is at work, as a table; below it what died, and how to go on with it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from kgqa.artefacts.claim import Claim
from kgqa.runtime.at_work import Claimed
from kgqa.terminal.console import Terminal

_COLUMNS = ("work", "stage", "done", "failed", "per minute", "tokens/s", "left", "paid", "for")


def show_status(found: Sequence[Claimed], unclaimed: Sequence[Path], terminal: Terminal) -> None:
    """unclaimed: folders that some process holds without saying more."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in _COLUMNS:
        words = heading in ("work", "stage")
        table.add_column(heading, justify="left" if words else "right", no_wrap=not words, overflow="fold")
    for claimed in found:
        table.add_row(*map(escape, _row(claimed.claim, claimed.told())))
    if found:
        terminal.show(table)
    elif not unclaimed:
        terminal.line("nothing runs in outputs/; what has been run: kgqa runs")
    for claimed in found:
        if claimed.state == "dead":
            claim = claimed.claim
            kept = f"what it answered is kept in {claim.folder} and the call cache"
            on = f"; go on with: {claim.command}" if claim.command else ""
            terminal.line(f"process {claim.pid} on {claim.host} ended without a word: {kept}{on}", alarm=True)
    if any(claimed.state == "dead" for claimed in found):
        terminal.line("kgqa status --forget takes what died off this list; it is also gone once its command goes on")
    for folder in unclaimed:
        terminal.line(f"{folder}: a process holds it and says nothing of itself")


def _row(claim: Claim, state: str) -> tuple[str, ...]:
    done = f"{claim.ended:,}" if claim.count is None else f"{claim.ended:,} of {claim.count:,}"
    return (
        f"{claim.what} {claim.folder}" + ("" if state == "working" else f"\n{state}"),
        claim.stage,
        done if claim.stage else "",
        f"{claim.failed:,}" if claim.failed else "",
        "" if claim.per_minute is None else f"{claim.per_minute:,.1f}",
        "" if claim.tokens_per_second is None else f"{claim.tokens_per_second:,.0f}",
        "" if claim.seconds_left is None else _duration(claim.seconds_left),
        f"{claim.tokens:,} tokens" + ("" if claim.usd is None else f", {claim.usd:.4f} USD"),
        _duration(time.time() - claim.started),
    )


def _duration(seconds: float) -> str:
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
