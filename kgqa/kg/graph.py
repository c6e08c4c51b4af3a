"""Graphs of triples: statistics per question as in Table 5 of the TRACE paper, and what surrounds an entity."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from kgqa.errors import EngineError
from kgqa.kg.parsing import Extraction
from kgqa.types import Triple

MAX_FAILED = 0.05  # share of failed passages from which on a graph is of no use for an experiment


@dataclass(frozen=True, slots=True)
class GraphStatistics:
    """Means over questions. The density needs two entities; it is None if no question has them."""

    questions: int
    entities: float | None
    triples: float | None
    density: float | None  # percent


@dataclass(frozen=True, slots=True)
class ChainStatistics:
    """Means over questions, None if no question has the quantity."""

    questions: int
    chain_length: float | None  # over the non-empty chains of the reader, all questions together
    documents: float | None  # evidence passages per question, in the paper: relevant documents
    document_error_rate: float | None  # percent of the evidence that is not support, over questions with evidence


def density(triples: Sequence[Triple]) -> float | None:
    """Return triples over ordered pairs of distinct entities, in percent; None for fewer than two entities.

    This reading of "density" gives the order of Table 5: 79.04 triples over 83.63 entities are 1.14. The paper has
    1.20 because the mean of densities is larger than the density of the means.
    """
    entities, distinct = _entities_and_triples(triples)
    return 100 * distinct / (entities * (entities - 1)) if entities > 1 else None


def graph_statistics(graphs: Iterable[Sequence[Triple]]) -> GraphStatistics:
    """Return the statistics of one graph per question. Equal triples of two passages count once."""
    sizes = [(*_entities_and_triples(graph), density(graph)) for graph in graphs]
    return GraphStatistics(
        len(sizes),
        _mean(entities for entities, _, _ in sizes),
        _mean(triples for _, triples, _ in sizes),
        _mean(dense for _, _, dense in sizes if dense is not None),
    )


@dataclass(frozen=True, slots=True)
class ReadChains:
    """One answer of `method=trace`: gold passages, evidence, and the number of triples of each chain of the reader."""

    support: frozenset[str]
    evidence: tuple[str, ...]
    lengths: tuple[int, ...]


def chain_statistics(answered: Sequence[ReadChains]) -> ChainStatistics:
    return ChainStatistics(
        len(answered),
        _mean(length for answer in answered for length in answer.lengths if length),
        _mean(len(answer.evidence) for answer in answered),
        _mean(
            100 * sum(passage not in answer.support for passage in answer.evidence) / len(answer.evidence)
            for answer in answered
            if answer.evidence
        ),
    )


def too_many_failed(failed: Sequence[Extraction], attempted: int) -> EngineError | None:
    """Return the error to raise if more than 5 % of the passages failed. Fewer failed passages count as empty."""
    if len(failed) <= MAX_FAILED * attempted:
        return None
    return EngineError(
        f"extraction failed for {len(failed)} of {attempted} passages, first {failed[0].title!r}: {failed[0].error}; "
        "run the same command again: it extracts only the failed passages"
    )


def normalize_entity(name: str) -> str:
    """Return the form in which entities are compared: without case and repeated spaces."""
    return " ".join(name.split()).casefold()


def entity_names(triples: Iterable[Triple]) -> dict[str, str]:
    """Return the first spelling of each entity by its normalized form."""
    names: dict[str, str] = {}
    for triple in triples:
        for name in (triple.head, triple.tail):
            names.setdefault(normalize_entity(name), name)
    return names


def neighborhood(triples: Iterable[Triple], entity: str, hops: int) -> list[Triple]:
    """Return the triples within some hops of an entity, in either direction: nearest first, then in order.

    Equal triples of two passages count once.
    """
    by_entity = defaultdict[str, list[Triple]](list)
    for triple in dict.fromkeys(triples):
        for name in dict.fromkeys((normalize_entity(triple.head), normalize_entity(triple.tail))):
            by_entity[name].append(triple)
    near: dict[tuple[str, ...], Triple] = {}
    seen = {normalize_entity(entity)}
    edge = list(seen)
    for _ in range(hops):
        reached: dict[str, None] = {}
        for name in edge:
            for triple in by_entity[name]:
                head, relation, tail = map(normalize_entity, (triple.head, triple.relation, triple.tail))
                near.setdefault((head, relation, tail), triple)
                reached |= dict.fromkeys((head, tail))
        edge = [name for name in reached if name not in seen]
        seen |= reached.keys()
    return list(near.values())


def _entities_and_triples(triples: Sequence[Triple]) -> tuple[int, int]:
    distinct = {(triple.head, triple.relation, triple.tail) for triple in triples}
    return len({entity for head, _, tail in distinct for entity in (head, tail)}), len(distinct)


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return fmean(listed) if listed else None
