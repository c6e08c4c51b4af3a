"""Prepare a run before its first question: triples, the index and passage graphs, built once and reused."""

from __future__ import annotations

from kgqa.experiment.session import Inputs, Session
from kgqa.retrieval.search import PoolIndex
from kgqa.runtime.costs import Ledger
from kgqa.runtime.display import Display


def prepare(session: Session, index: PoolIndex | None, display: Display) -> Inputs:
    """Extract the triples and link the passages that the method uses.

    Raises:
        DataError: triples are missing with `kg.require_existing`, or an imported file has none of the passages.
        EngineError: more than 5 % of the passages failed.
    """
    uses, questions = session.experiment.method.uses, session.experiment.data.questions
    triples, graphs, extraction = None, None, Ledger()
    if "triples" in uses:
        from kgqa.experiment.prepare.triples import prepare_triples

        triples, extraction = prepare_triples(session, questions, display)
    if "graph" in uses:
        from kgqa.experiment.prepare.passage_graphs import PassageGraphs

        graphs = PassageGraphs(session.experiment, session.linker)
        graphs.build(questions, display)
    return Inputs(index, triples, graphs, session.search_program, extraction)
