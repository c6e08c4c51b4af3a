"""Prepare a run before its first question: triples, the index and passage graphs, built once and reused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kgqa.experiment.session import Inputs, Session
from kgqa.retrieval.search import PoolIndex
from kgqa.runtime.costs import Ledger
from kgqa.runtime.display import Display

if TYPE_CHECKING:
    from kgqa.experiment.prepare.passage_graphs import PassageGraphs
    from kgqa.experiment.prepare.triples import ImportedSource, TripleBuilder


@dataclass(frozen=True)
class Prepared:
    """The inputs of a method, where they come from, and the cost of the extraction."""

    inputs: Inputs
    triples: TripleBuilder | ImportedSource | None
    graphs: PassageGraphs | None
    extraction: Ledger


def prepare(session: Session, index: PoolIndex | None, display: Display) -> Prepared:
    """Extract and link what the method uses and what does not exist yet.

    Raises:
        DataError: triples are missing with `kg.require_existing`, or an imported file has none of the passages.
        EngineError: more than 5 % of the passages failed.
    """
    uses, questions = session.experiment.method.uses, session.experiment.questions
    triples, graphs, extraction = None, None, Ledger()
    if "triples" in uses:
        from kgqa.experiment.prepare.triples import distinct_passages, triples_of

        triples = triples_of(session)
        extraction = triples.extract(lambda: distinct_passages(questions), display)
    if "graph" in uses:
        from kgqa.experiment.prepare.passage_graphs import PassageGraphs

        graphs = PassageGraphs(session)
        graphs.build(questions, display)
    stores = triples.store if triples else None, graphs.store if graphs else None
    inputs = Inputs(index, *stores, session.search_program)
    return Prepared(inputs, triples, graphs, extraction)
