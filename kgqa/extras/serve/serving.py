"""`kgqa serve`: the models and the search of one configuration, for programs of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import cast

from kgqa.calls import Program, RunAgent
from kgqa.config.overrides import override_group
from kgqa.errors import ConfigError
from kgqa.experiment.check import check
from kgqa.experiment.composing import compose_experiment
from kgqa.experiment.engines import Pool
from kgqa.experiment.experiment import Experiment
from kgqa.experiment.prepare.indexes import corpus_index
from kgqa.experiment.session import Inputs, Session
from kgqa.extras.serve.agents import Visitors
from kgqa.methods.outside import OutsideAgent
from kgqa.runtime.costs import Ledger
from kgqa.runtime.display import Display
from kgqa.types import AgentReply, Question

MODEL_KEYS = ("model", "engine", "server", "roles")
SEARCH_KEYS = ("retriever", "dataset", "collection")


def compose_server(overrides: Sequence[str]) -> Experiment:
    """Return the experiment of a server: with a model, a search, or both, as the keys name them.

    Raises ConfigError: they name neither.
    """
    for override in overrides:
        if override_group(override) == "method":
            raise ConfigError(f"{override}: kgqa serve has no method=…: remove it")
    named = {override_group(override).partition(".")[0] for override in overrides}
    needs = [
        need
        for need, keys in {"model": MODEL_KEYS, "search": SEARCH_KEYS}.items()
        if named.intersection(keys)
    ]
    if not needs:
        raise ConfigError(
            "kgqa serve needs a model (model= or server=), or a retriever (retriever= and dataset=)"
        )
    return compose_experiment(["method=command", f"method.needs=[{','.join(needs)}]", *overrides])


def serve(
    experiment: Experiment,
    display: Display,
    host: str,
    port: int,
    announce: Callable[[str, str], None],
    *,
    is_stdio: bool = False,
) -> Ledger:
    """Serve until the user stops it, with the call cache and the budget of a run. Return the costs.

    announce: called with the address and the token when the server is open.
    """
    visitors = Visitors(cast(OutsideAgent, experiment.method), announce, host, port, is_stdio)
    with Session(experiment, Pool()) as session:
        check(session, servers=True)
        if not experiment.searches:
            return _run(session, Inputs(), visitors)
        with corpus_index(session, display) as index:
            return _run(session, Inputs(index, searches=session.search_program), visitors)


def _run(session: Session, inputs: Inputs, visitors: Visitors) -> Ledger:
    async def listen() -> AgentReply:
        return await RunAgent(visitors, Question("", "", ()), "kgqa serve")

    programs: list[tuple[str, Program[AgentReply]]] = [("serve", listen())]
    with session.runner(inputs) as runner, suppress(KeyboardInterrupt):
        for _ in runner.run(programs):
            pass
    return runner.ledger
