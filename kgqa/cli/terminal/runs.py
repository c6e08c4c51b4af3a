"""A list of runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.markup import escape
from rich.table import Table

from kgqa.artifacts.metrics import Estimate, Metrics
from kgqa.artifacts.runs import Kept
from kgqa.cli.terminal.console import Terminal
from kgqa.errors import DataError


def show_runs(runs: Sequence[Kept], limit: int, terminal: Terminal) -> None:
    """Show when each run was written, its name and its scores."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("written", no_wrap=True)
    table.add_column("run", overflow="fold")  # never shortened: it is there to be typed
    for heading in ("questions", "EM", "F1"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column()
    for run in runs[:limit]:
        table.add_row(f"{datetime.fromtimestamp(run.written):%Y-%m-%d %H:%M}", escape(run.name), *_outcome(run))
    if not runs:
        terminal.line("no such runs in outputs/; begin with: kgqa run method=trace dataset=demo limit=3")
        return
    terminal.show(table)
    if len(runs) > limit:
        terminal.line(f"{limit} of {len(runs):,}; all: --limit {len(runs)}")


def _outcome(run: Kept) -> tuple[str, str, str, str]:
    if not run.ended:
        return "", "", "", "not ended; its command goes on with it"
    try:
        metrics = Metrics.read(run.folder)
    except DataError:
        return "", "", "", "metrics.json is damaged; its command writes it again"
    failed = f"{metrics.failed:,} failed" if metrics.failed else ""
    return f"{metrics.questions:,}", _mean(metrics.scores.em), _mean(metrics.scores.f1), failed


def _mean(score: Estimate) -> str:
    return "" if score.mean is None else f"{score.mean:.1f}"
