"""Estimate the new calls of a sweep's cells, their time and their cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace

from kgqa.errors import KgqaError
from kgqa.experiment.run.checking import check
from kgqa.experiment.run.estimating import Estimated, Rate, estimate_roles, measure_rates
from kgqa.experiment.run.finished import find_finished_run
from kgqa.experiment.run.planning import Shared, plan_calls
from kgqa.experiment.session.engines import Pool
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.session import Session
from kgqa.sweeps.cells import Cell, adjacent
from kgqa.training.verify.verifying import load_verification, plan_verification

FINISHED = Estimated(0, 0, 0, 0.0, None, (), 0)


def estimate_cells(cells: Sequence[Cell]) -> dict[int, Estimated | str]:
    """Return, by cell number, the estimate or the reason why the cell cannot run. Makes no model calls and writes no
    files.
    """
    rates, shared = measure_rates(), Shared()
    estimates: dict[int, Estimated | str] = {}
    for group in adjacent(cells):
        with closing(Pool()) as pool:
            for cell in group:
                estimates[cell.number] = _estimate(cell, pool, shared, rates)
    return {cell.number: estimates[cell.number] for cell in cells}


def _estimate(cell: Cell, pool: Pool, shared: Shared, rates: Mapping[str, Rate]) -> Estimated | str:
    try:
        with Session(replace(cell.experiment), pool) as session:  # a copy, as in `run_cell`
            if _is_finished(session):
                return FINISHED
            if session.experiment.verifies:
                return estimate_roles(plan_verification(session, shared).values(), rates)
            check(session)
            return estimate_roles(plan_calls(session, shared).values(), rates)
    except KgqaError as error:
        return " ".join(str(error).split())


def roughly_estimated(cells: Sequence[Cell], questions: int) -> list[Estimated | str]:
    """Return the same from the first questions of each alone, times as many as there are: seconds where all take
    hours.
    """
    numbered = [replace(cell, number=number) for number, cell in enumerate(cells)]
    sizes = {cell.number: len(replace(cell.experiment).questions) for cell in numbered}
    done = {cell.number for cell in numbered if _count_ended(cell)}
    firsts = [first_questions(cell, questions) for cell in numbered if cell.number not in done]
    found: dict[int, Estimated | str] = {**dict.fromkeys(done, FINISHED), **estimate_cells(firsts)}
    return [times(found[cell.number], max(1.0, sizes[cell.number] / questions)) for cell in numbered]


def _count_ended(cell: Cell) -> bool:
    try:
        with Session(replace(cell.experiment)) as session:
            return _is_finished(session)
    except KgqaError:
        return False


def _is_finished(session: Session) -> bool:
    return (load_verification if session.experiment.verifies else find_finished_run)(session) is not None


def first_questions(cell: Cell, questions: int) -> Cell:
    """Return a run of no other's name, so that none seems to have ended."""
    experiment = cell.experiment
    ids = [question.id for question in replace(experiment).questions[:questions]]
    config = {**experiment.config, "ids": ids, "limit": None, "sample": None, "name": None}
    return replace(cell, experiment=Experiment.of(experiment.overrides, config))


def times(estimated: Estimated | str, share: float) -> Estimated | str:
    if isinstance(estimated, str):
        return estimated
    return replace(
        estimated,
        calls=round(share * estimated.calls),
        new_calls=round(share * estimated.new_calls),
        tokens=round(share * estimated.tokens),
        seconds=None if estimated.seconds is None else share * estimated.seconds,
        usd=None if estimated.usd is None else share * estimated.usd,
    )


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
