"""Prepare the inputs of a run's method: triples of its passages, graphs of its collections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kgqa.artifacts.metrics import Figures
from kgqa.experiment.session.runner import Prepared
from kgqa.experiment.session.session import Session
from kgqa.protocols import Index
from kgqa.runtime.costs import Ledger
from kgqa.runtime.display import Display
from kgqa.types import Question

if TYPE_CHECKING:
    from kgqa.experiment.prepare.given_triples import GivenTriples
    from kgqa.experiment.prepare.passage_graphs import PassageGraphs
    from kgqa.experiment.prepare.triples import TripleBuilder


@dataclass(frozen=True)
class Preparation:
    """The result of the preparation, its cost and its messages."""

    prepared: Prepared
    extraction: Ledger
    triples: TripleBuilder | GivenTriples | None
    collections: PassageGraphs | None

    def graph(self, questions: Sequence[Question]) -> Figures | None:
        """Return what `metrics.json` says of the triples that these questions were answered with."""
        return self.triples.statistics(questions) if self.triples else None

    def passage_graph(self, questions: Sequence[Question]) -> Figures | None:
        """Return the same of the graphs of their collections."""
        return self.collections.statistics(questions) if self.collections else None


def prepare(session: Session, index: Index | None, display: Display) -> Preparation:
    """Extract and link what the method asks for and is not there yet.

    Raises:
        DataError: triples are missing with `kg.require_existing`, or an imported file has none of the passages.
        EngineError: more than 5 % of the passages failed.
    """
    uses, questions = session.experiment.method.uses, session.experiment.questions
    triples, extraction, collections = None, Ledger(), None
    if "triples" in uses:
        from kgqa.experiment.prepare.given_triples import triples_of

        triples = triples_of(session)
        extraction = triples.extract(questions, display)
    if "graph" in uses:
        from kgqa.experiment.prepare.passage_graphs import PassageGraphs

        collections = PassageGraphs(session)
        collections.build(questions, display)
    prepared = Prepared(index, triples.store if triples else None, collections.store if collections else None)
    return Preparation(prepared, extraction, triples, collections)
