"""Calls of one role outside of a run: the teacher of `kgqa collect`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from kgqa.artifacts.examples import NotTaught
from kgqa.artifacts.metrics import Costs
from kgqa.calls import Program
from kgqa.errors import BudgetSpent
from kgqa.experiment.engines import Engines, role_nodes
from kgqa.experiment.session import Session
from kgqa.runtime.costs import Budget
from kgqa.runtime.display import Display

Programs = Iterable[tuple[str, Program[Any]]]


def role_engines(session: Session, role: str) -> Engines:
    """Return the engines with only this role, which is the reader's unless it has its own model."""
    nodes = role_nodes(session.experiment.config)
    return session.engines_of({name: node for name, node in nodes.items() if name in ("", "reader", role)})


def run_programs(
    session: Session, role: str, programs: Programs, count: int, display: Display, budget: Budget | None = None
) -> tuple[dict[str, object], Costs]:
    """Return the result of each program, or the exception that it raised, and the cost.

    All calls go through the call cache, so that the same command repeats only what is missing.

    Raises BudgetSpent: all replies so far are in the call cache.
    """
    engines, results = role_engines(session, role), dict[str, object]()
    with (
        session.runner(engines=engines) as runner,
        display.stage("questions", count, runner.ledger) as stage,
    ):
        for end in runner.run(programs):
            results[end.key] = end.result
            stage.finish(failed=is_failure(end.result))
            # for engines that do not count themselves: calls in progress are still paid for
            if budget is not None and (used := replace(budget, paid=runner.ledger.spent())).spent():
                raise BudgetSpent(
                    f"{used.so_far()}: it is spent. All replies are saved, and the same command continues with a "
                    "higher budget"
                )
    return results, runner.ledger.costs(count)


def is_failure(result: object) -> bool:
    return isinstance(result, Exception) and not isinstance(result, NotTaught)
