"""Whatever is wrong with a configuration or its data is said before anything is asked or written."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kgqa.errors import ConfigError
from kgqa.experiment.run.judging import judge_engines
from kgqa.experiment.run.tracking import chosen_tracker
from kgqa.experiment.session.session import Session
from kgqa.scoring.metrics import profile_formula


def check(session: Session) -> None:
    """Raises ConfigError or DataError for the first thing that would keep the run from its end."""
    experiment = session.experiment
    profile_formula(experiment.profile)
    chosen_tracker(experiment.config)
    session.engines.identities()
    _ = experiment.questions
    parts: dict[str, Callable[[], object]] = {
        "retriever": lambda: session.retriever,
        "graph": lambda: session.linker,
        # with its identity: whether its packages and its model can be had
        **{group: partial(_identified, session, group) for group in ("ranker", "demonstrations_ranker", "reranker")},
    }
    for group, made in parts.items():
        if group in experiment.choices or group in experiment.method.uses:
            made()
    judge = experiment.judge
    if judge and not experiment.asks_models:
        names = f"judge={experiment.name('judge')}: method={experiment.name('method')}"
        raise ConfigError(f"{names} answers nothing; leave it out")
    if judge:
        judge_engines(session, judge).identities()


def _identified(session: Session, group: str) -> None:
    session.ranker(group).identity()
