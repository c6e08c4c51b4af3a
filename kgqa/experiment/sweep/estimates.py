"""What cells would ask that no earlier one has asked, how long it takes and what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace

from kgqa.errors import KgqaError
from kgqa.experiment.run.checking import check
from kgqa.experiment.run.estimating import Estimated, Rate, estimate_roles, measured_rates
from kgqa.experiment.run.finished import finished
from kgqa.experiment.run.planning import Shared, planned
from kgqa.experiment.session.engines import Pool
from kgqa.experiment.session.session import Session
from kgqa.experiment.sweep.cells import Cell, adjacent

FINISHED = Estimated(0, 0, 0, 0.0, None, (), 0)


def estimated_cells(cells: Sequence[Cell]) -> dict[int, Estimated | str]:
    """By number: the estimate, or in one line why the cell cannot run. Nothing is asked and nothing written."""
    rates, shared = measured_rates(), Shared()
    estimates: dict[int, Estimated | str] = {}
    for group in adjacent(cells):
        with closing(Pool()) as pool:
            for cell in group:
                estimates[cell.number] = _estimated(cell, pool, shared, rates)
    return {cell.number: estimates[cell.number] for cell in cells}


def _estimated(cell: Cell, pool: Pool, shared: Shared, rates: Mapping[str, Rate]) -> Estimated | str:
    try:
        with Session(replace(cell.experiment), pool) as session:  # a copy, as in `run_cell`
            if finished(session) is not None:
                return FINISHED
            check(session)
            return estimate_roles(planned(session, shared).values(), rates)
    except KgqaError as error:
        return " ".join(str(error).split())


def in_all(estimates: Sequence[Estimated]) -> Estimated:
    seconds = [cell.seconds for cell in estimates]
    dollars = [cell.usd for cell in estimates if cell.usd is not None]
    return Estimated(
        sum(cell.calls for cell in estimates),
        sum(cell.new_calls for cell in estimates),
        sum(cell.tokens for cell in estimates),
        None if None in seconds else sum(known for known in seconds if known is not None),
        sum(dollars) if dollars else None,
        tuple(dict.fromkeys(name for cell in estimates for name in cell.unmeasured)),
        max((cell.measured for cell in estimates), default=0),
    )
