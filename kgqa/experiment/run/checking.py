"""Whatever is wrong with a configuration or its data is said before anything is asked or written, all of it at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from kgqa.errors import ConfigError, UsageError, note
from kgqa.experiment.run.contamination import refuse_trained
from kgqa.experiment.run.judge_roles import judge_engines
from kgqa.experiment.run.tracking import choose_tracker
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.session import Session
from kgqa.scoring.metrics import profile_formula


def check(session: Session, met: UsageError | None = None) -> None:
    """
    `met`: what kept the run from its end already.

    Raises:
        UsageError: `met`, or the first thing that would keep the run from its end; whatever else is missing is noted.
    """
    found = [met, *map(_wrong, _looks(session))]
    wrong = [error for error in found if error is not None]
    if not wrong:
        return
    first, *others = wrong
    for text in dict.fromkeys([*map(str, others), *_unready(session)]):
        if text != str(first):
            note(first, text)
    raise first


def _wrong(look: Callable[[], object]) -> UsageError | None:
    try:
        look()
    except UsageError as error:
        return error
    return None


def _looks(session: Session) -> Iterator[Callable[[], object]]:
    """Yield checks, each of which raises what is wrong with its part."""
    experiment = session.experiment
    yield lambda: _answering(experiment)
    yield lambda: profile_formula(experiment.profile)
    yield lambda: choose_tracker(experiment.config)
    yield session.engines.identities
    yield lambda: experiment.questions
    yield lambda: refuse_trained(experiment)
    parts: dict[str, Callable[[], object]] = {
        "retriever": lambda: session.retriever,
        "graph": lambda: session.linker,
        # with its identity: whether its packages and its model can be had
        **{group: partial(_identify, session, group) for group in ("ranker", "demonstrations_ranker", "reranker")},
    }
    for group, look in parts.items():
        yield partial(_look_at_chosen, session, group, look)
    yield lambda: _judging(session)


def _answering(experiment: Experiment) -> None:
    if experiment.verifies:
        raise ConfigError(f"verify={experiment.name('verify')}: a run answers questions; use kgqa data verify")


def _look_at_chosen(session: Session, group: str, look: Callable[[], object]) -> None:
    experiment = session.experiment
    if group in experiment.choices or group in experiment.method.uses:
        look()


def _judging(session: Session) -> None:
    experiment = session.experiment
    judge = experiment.judge
    if judge and not experiment.asks_models:
        names = f"judge={experiment.name('judge')}: method={experiment.name('method')}"
        raise ConfigError(f"{names} answers nothing; leave it out")
    if judge:
        judge_engines(session, judge).identities()


def _unready(session: Session) -> list[str]:
    """Return the unready of what is not looked at for a run that its call cache may answer."""
    try:
        return session.engines.unready()
    except UsageError:  # told already
        return []


def _identify(session: Session, group: str) -> None:
    session.ranker(group).identity()
