"""Estimate the new calls of a sweep's cells, their time and their cost."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from kgqa.cache.store import CallCache
from kgqa.errors import KgqaError
from kgqa.experiment.check import check
from kgqa.experiment.dry_run import Shared, plan_calls
from kgqa.experiment.engines import Pool
from kgqa.experiment.estimates import Estimated, Estimator, Range
from kgqa.experiment.experiment import Experiment
from kgqa.experiment.session import Session
from kgqa.sweeps.cells import Cell, group_by_models
from kgqa.training.verify import plan_verification
from kgqa.util.fs import call_cache

FINISHED = Estimated(0, 0, Range(), Range(), None)


def estimate_cells(cells: Sequence[Cell], first: int | None = None) -> list[Estimated | str]:
    """Return the estimate of each cell, or the reason why it cannot run. Makes no model calls and writes no files.

    first: estimate from the first N questions of each cell only, which takes seconds where all questions take hours.
    """
    shared, estimates = Shared(), dict[int, Estimated | str]()
    with closing(CallCache(call_cache())) as cache:
        estimator = Estimator(cache)
        for group in group_by_models(cells):
            with closing(Pool()) as pool:
                for cell in group:
                    estimates[id(cell)] = _estimate(replace(cell), pool, shared, estimator, first)
    return [estimates[id(cell)] for cell in cells]


def _estimate(cell: Cell, pool: Pool, shared: Shared, estimator: Estimator, first: int | None) -> Estimated | str:
    experiment, share = replace(cell.experiment), 1.0  # a copy, as in `run_cell`
    try:
        with Session(experiment, pool) as session:
            if cell.skip_if_finished(session):
                return FINISHED
        if first is not None:
            share = max(1.0, len(experiment.questions) / first)
            experiment = first_questions(experiment, first)
        with Session(experiment, pool) as session:
            if experiment.verifies:
                return estimator.estimate(plan_verification(session, shared), "").scaled(share)
            check(session)
            return estimator.estimate(plan_calls(session, shared), experiment.choices["method"]).scaled(share)
    except KgqaError as error:
        return " ".join(str(error).split())


def first_questions(experiment: Experiment, count: int) -> Experiment:
    """Return the experiment with its first questions only, and without the name of a finished run."""
    ids = [question.id for question in replace(experiment).questions[:count]]
    config = {**experiment.config, "ids": ids, "limit": None, "sample": None, "run_name": None}
    return Experiment.of(experiment.overrides, config)
