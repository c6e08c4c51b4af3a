"""`dry_run=true` for cells: what each would ask, how long it takes and what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rich.markup import escape
from rich.table import Table

from kgqa.cli.terminal.console import Terminal
from kgqa.experiment.run.estimating import Estimated, duration
from kgqa.experiment.session.budget import Budget
from kgqa.sweeps.cells import Cell
from kgqa.sweeps.estimates import FINISHED, estimate_cells, in_all, roughly_estimated

PLANNED = 5  # questions of each run that a plan looks at


def show_estimates(cells: Sequence[Cell], terminal: Terminal, budget: Budget | None = None) -> int:
    """Plan every cell, print the plans and their sum. Gives 2 if a cell cannot run."""
    estimates = estimate_cells(cells)
    runnable = [estimate for estimate in estimates.values() if isinstance(estimate, Estimated)]
    whole = in_all(runnable)
    terminal.show(_table(cells, estimates, whole, len(runnable)))
    for cell in cells:
        if isinstance(reason := estimates[cell.number], str):
            terminal.line(f"cell {cell.number} ({cell.name}): {reason}", alarm=True)
    for line in whole.lines():
        terminal.line(line)
    if budget:
        terminal.line(f"budget={budget} {_format_coverage(budget, whole)}")
    return 2 if len(runnable) < len(cells) else 0


def show_plan(stages: Mapping[str, Sequence[Cell]], terminal: Terminal) -> int:
    """Show runs, calls, tokens, hours and costs of each stage; return 2 if a run is impossible."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for header in ("stage", "runs", "questions", "calls", "to be asked", "tokens to be asked", "time", "USD"):
        table.add_column(header, justify="left" if header == "stage" else "right", overflow="fold")
    whole, wrong, count, asked = list[Estimated](), list[str](), 0, 0
    for stage, cells in stages.items():
        found = roughly_estimated(cells, PLANNED)
        known = [estimate for estimate in found if isinstance(estimate, Estimated)]
        questions = sum(len(replace(cell.experiment).questions) for cell in cells)
        table.add_row(stage, f"{len(cells):,}", f"{questions:,}", *_figures(in_all(known)))
        whole, count, asked = [*whole, *known], count + len(cells), asked + questions
        wrong += [estimate for estimate in found if isinstance(estimate, str)]
    table.add_row("all", f"{count:,}", f"{asked:,}", *_figures(in_all(whole)))
    terminal.show(table)
    for line in in_all(whole).lines():
        terminal.line(line)
    for reason in dict.fromkeys(wrong):
        terminal.line(f"{wrong.count(reason):,} runs cannot be: {reason}", alarm=True)
    terminal.line(f"planned with made-up replies to the first {PLANNED} questions of each run, times their number")
    return 2 if wrong else 0


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


def _format_coverage(budget: Budget, whole: Estimated) -> str:
    if budget.dollars is not None and whole.usd is None and whole.new_calls:
        return "stops nothing: none of these models has a price"
    over = budget.tokens is not None and budget.tokens < whole.tokens
    over = over or (budget.dollars is not None and budget.dollars < (whole.usd or 0.0))
    return f"{'may not cover' if over else 'covers'} all of it"


def _figures(estimated: Estimated) -> tuple[str, ...]:
    time = "not known" if estimated.seconds is None else duration(estimated.seconds)
    usd = "–" if estimated.usd is None else f"{estimated.usd:,.4f}"
    return f"{estimated.calls:,}", f"{estimated.new_calls:,}", f"{estimated.tokens:,}", time, usd
