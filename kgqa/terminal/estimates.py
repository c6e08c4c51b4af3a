"""`dry_run=true` for cells: what each would ask, how long it takes and what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.markup import escape
from rich.table import Table

from kgqa.experiment.run.estimating import Estimated, duration
from kgqa.experiment.sweep.budget import SweepBudget
from kgqa.experiment.sweep.cells import Cell
from kgqa.experiment.sweep.estimates import FINISHED, estimated_cells, in_all
from kgqa.terminal.console import Terminal


def show_estimates(cells: Sequence[Cell], terminal: Terminal, budget: SweepBudget | None = None) -> int:
    """Plan every cell, print the plans and their sum. Gives 2 if a cell cannot run."""
    estimates = estimated_cells(cells)
    runnable = [estimate for estimate in estimates.values() if isinstance(estimate, Estimated)]
    whole = in_all(runnable)
    terminal.show(_table(cells, estimates, whole, len(runnable)))
    for cell in cells:
        if isinstance(reason := estimates[cell.number], str):
            terminal.line(f"cell {cell.number} ({cell.name}): {reason}", alarm=True)
    for line in whole.lines():
        terminal.line(line)
    if budget:
        terminal.line(f"budget={budget} {_covered(budget, whole)}")
    return 2 if len(runnable) < len(cells) else 0


def _table(cells: Sequence[Cell], estimates: Mapping[int, Estimated | str], whole: Estimated, runnable: int) -> Table:
    table = Table(
        title="planned with made-up replies", title_justify="left", box=None, padding=(0, 2, 0, 0), header_style="dim"
    )
    for header in ("cell", "settings", "calls", "to be asked", "tokens to be asked", "time", "USD"):
        table.add_column(header, justify="left" if header == "settings" else "right", overflow="fold")
    for cell in cells:
        estimated = estimates[cell.number]
        if isinstance(estimated, str):
            figures: tuple[str, ...] = ("[red]cannot run[/]", "", "", "", "")
        elif estimated is FINISHED:
            figures = ("finished", "0", "0", "", "")
        else:
            figures = _figures(estimated)
        table.add_row(str(cell.number), escape(cell.name), *figures)
    table.add_row("all", f"{runnable} cells that can run", *_figures(whole))
    return table


def _covered(budget: SweepBudget, whole: Estimated) -> str:
    if budget.dollars is not None and whole.usd is None and whole.new_calls:
        return "stops nothing: none of these models has a price"
    over = budget.tokens is not None and budget.tokens < whole.tokens
    over = over or (budget.dollars is not None and budget.dollars < (whole.usd or 0.0))
    return f"{'may not cover' if over else 'covers'} all of it"


def _figures(estimated: Estimated) -> tuple[str, ...]:
    time = "not known" if estimated.seconds is None else duration(estimated.seconds)
    usd = "–" if estimated.usd is None else f"{estimated.usd:,.4f}"
    return f"{estimated.calls:,}", f"{estimated.new_calls:,}", f"{estimated.tokens:,}", time, usd
