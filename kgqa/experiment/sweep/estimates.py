"""`dry_run=true` for cells: what each would ask that no earlier one has asked, how long it takes and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from kgqa.errors import KgqaError
from kgqa.experiment.run.checking import check
from kgqa.experiment.run.estimating import Estimated, duration, estimate_roles, measured_rates
from kgqa.experiment.run.finished import finished
from kgqa.experiment.run.planning import Shared, planned
from kgqa.experiment.session.engines import Pool
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.session import Session
from kgqa.experiment.sweep.budget import SweepBudget
from kgqa.experiment.sweep.running import Cell, adjacent

if TYPE_CHECKING:
    from rich.console import Console

_NOTHING = Estimated(0, 0, 0, 0.0, None, (), 0)


def estimated_cells(cells: Sequence[Cell]) -> dict[int, Estimated | str]:
    """By number: the estimate, or in one line why the cell cannot run. Nothing is asked and nothing written."""
    rates, shared = measured_rates(), Shared()
    found: dict[int, Estimated | str] = {}
    for group in adjacent(cells):
        with closing(Pool()) as pool:
            for cell in group:
                try:
                    with Session(Experiment.of(cell.overrides, cell.config), pool) as session:
                        if finished(session) is not None:
                            found[cell.number] = _NOTHING
                            continue
                        check(session)
                        found[cell.number] = estimate_roles(planned(session, shared).values(), rates)
                except KgqaError as error:
                    found[cell.number] = " ".join(str(error).split())
    return {cell.number: found[cell.number] for cell in cells}


def plan_cells(cells: Sequence[Cell], console: Console, budget: SweepBudget | None = None) -> int:
    """Print the plan of every cell and their sum. Gives 2 if a cell cannot run."""
    from rich.markup import escape
    from rich.table import Table

    found = estimated_cells(cells)
    table = Table(
        title="planned with made-up replies", title_justify="left", box=None, padding=(0, 2, 0, 0), header_style="dim"
    )
    for header in ("cell", "settings", "calls", "to be asked", "tokens to be asked", "time", "USD"):
        table.add_column(header, justify="left" if header == "settings" else "right", overflow="fold")
    plans = [each for each in found.values() if isinstance(each, Estimated)]
    for cell in cells:
        each = found[cell.number]
        if isinstance(each, str):
            table.add_row(str(cell.number), escape(cell.name), "[red]cannot run[/]", "", "", "", "")
        elif each is _NOTHING:
            table.add_row(str(cell.number), escape(cell.name), "finished", "0", "0", "", "")
        else:
            table.add_row(str(cell.number), escape(cell.name), *_figures(each))
    whole = _sum(plans)
    table.add_row("all", f"{len(plans)} cells that can run", *_figures(whole))
    console.print(table, highlight=False)
    for cell in cells:
        if isinstance(reason := found[cell.number], str):
            console.print(
                f"cell {cell.number} ({cell.name}): {reason}",
                style="red",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )
    for line in whole.lines():
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if budget:
        console.print(f"budget={budget} {_covered(budget, whole)}", markup=False, highlight=False)
    return 2 if len(plans) < len(cells) else 0


def _covered(budget: SweepBudget, whole: Estimated) -> str:
    if budget.dollars is not None and whole.usd is None and whole.asked:
        return "stops nothing: none of these models has a price"
    over = budget.tokens is not None and budget.tokens < whole.tokens
    over = over or (budget.dollars is not None and budget.dollars < (whole.usd or 0.0))
    return f"{'may not cover' if over else 'covers'} all of it"


def _figures(each: Estimated) -> tuple[str, ...]:
    time = "not known" if each.seconds is None else duration(each.seconds)
    usd = "–" if each.usd is None else f"{each.usd:,.4f}"
    return f"{each.calls:,}", f"{each.asked:,}", f"{each.tokens:,}", time, usd


def _sum(plans: Sequence[Estimated]) -> Estimated:
    seconds = [each.seconds for each in plans]
    dollars = [each.usd for each in plans if each.usd is not None]
    return Estimated(
        sum(each.calls for each in plans),
        sum(each.asked for each in plans),
        sum(each.tokens for each in plans),
        None if None in seconds else sum(each for each in seconds if each is not None),
        sum(dollars) if dollars else None,
        tuple(dict.fromkeys(name for each in plans for name in each.unmeasured)),
        max((each.measured for each in plans), default=0),
    )
