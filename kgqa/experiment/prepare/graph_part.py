"""The part of a run's knowledge graph that a word stands for: a question's id, or an entity's name."""

from __future__ import annotations

from collections.abc import Sequence

from kgqa.errors import ConfigError, DataError, nearest
from kgqa.experiment.prepare.given_triples import GivenTriples, triples_of
from kgqa.experiment.prepare.triples import TripleBuilder, distinct_passages
from kgqa.experiment.session.session import Session
from kgqa.kg.graph import entity_names, neighborhood, normalize_entity
from kgqa.report.neighbourhood import GraphPart
from kgqa.types import Passage

Source = TripleBuilder | GivenTriples
HINTED = 2000  # entities that a name is compared with to find what may have been meant


def graph_part(session: Session, wanted: str, hops: int) -> GraphPart:
    """Return a question's whole graph, or what surrounds an entity in the graph of all questions' passages.

    Raises:
        ConfigError: neither a question nor an entity is called so.
        DataError: triples are missing, or there are none.
    """
    questions, source = session.experiment.questions, triples_of(session)
    asked = next((question for question in questions if question.id == wanted), None)
    if asked:
        return _part(f"{asked.id}: {asked.text}", source, asked.passages, None)
    if hops < 1:
        raise ConfigError(f"--hops={hops}: must be at least 1")
    passages = list(distinct_passages(questions))
    return _part(wanted, source, passages, hops)


def _part(heading: str, source: Source, passages: Sequence[Passage], hops: int | None) -> GraphPart:
    """Return `hops`: of an entity, whose name the heading is."""
    triples = [triple for passage in passages for triple in source.store.triples(passage)]
    if not triples:
        raise DataError(f"{_place(source)}: no triples of these passages")
    if hops is not None:
        known = entity_names(triples)
        if normalize_entity(heading) not in known:
            few = len(known) <= HINTED
            hint = nearest(heading, known.values()) if few else "kgqa kg export lists them"
            raise ConfigError(f"{heading}: neither a question's id nor an entity of these triples; {hint}")
        heading, triples = known[normalize_entity(heading)], neighborhood(triples, heading, hops)
    return GraphPart(heading, _place(source), triples, {passage.id: passage.title for passage in passages})


def _place(source: Source) -> str:
    return str(source.store.file)
