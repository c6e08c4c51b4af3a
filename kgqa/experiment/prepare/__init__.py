"""Prepare a run before its first question: the index, triples and passage graphs, built once and reused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from kgqa.experiment.prepare.indexes import open_index
from kgqa.experiment.session import Inputs, Session
from kgqa.runtime.costs import Ledger
from kgqa.runtime.display import Display


@contextmanager
def prepare(session: Session, display: Display) -> Iterator[Inputs]:
    """Open the index, extract the triples and link the passages that the method uses.

    Raises:
        ConfigError: the index of a large corpus is not built.
        DataError: triples are missing with `kg.require_existing`, or an imported file has none of the passages.
        EngineError: more than 5 % of the passages failed.
    """
    uses, questions = session.experiment.method.uses, session.experiment.data.questions
    index, triples, graphs, extraction = None, None, None, Ledger()
    with ExitStack() as opened:
        if session.experiment.searches:
            index = opened.enter_context(open_index(session, display))
        if "triples" in uses:
            from kgqa.experiment.prepare.triples import prepare_triples

            triples, extraction = prepare_triples(
                session,
                questions,
                display,
                new_calls=not session.experiment.settings.require_existing,
            )
        if "graph" in uses:
            from kgqa.experiment.prepare.passage_graphs import PassageGraphs

            graphs = PassageGraphs(session.experiment, session.linker)
            graphs.build(questions, display)
        yield Inputs(index, triples, graphs, session.search_program, extraction)
