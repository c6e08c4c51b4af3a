"""Statistics of knowledge graphs and chains per question, as in Table 5 of the TRACE paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from kgqa.errors import EngineError
from kgqa.kg.parsing import Extraction
from kgqa.types import Triple

MAX_FAILED = 0.05  # more failed passages than this, and the graph is no basis for an experiment


@dataclass(frozen=True, slots=True)
class GraphStatistics:
    """Means over questions; a density is only defined for two entities or more, and None where no question has them."""

    questions: int
    entities: float | None
    triples: float | None
    density: float | None  # percent


@dataclass(frozen=True, slots=True)
class ChainStatistics:
    """Means over questions, None where no question has the quantity."""

    questions: int
    chain_length: float | None  # over the non-empty chains the reader was given, all questions together
    documents: float | None  # evidence passages per question; the paper calls them relevant documents
    document_error_rate: float | None  # percent of the evidence that is no support; questions without evidence left out


def density(triples: Sequence[Triple]) -> float | None:
    """Triples over the ordered pairs of distinct entities, in percent; None for fewer than two entities.

    This reading of "density" reproduces the order of Table 5: 79.04 triples over 83.63 entities give 1.14, and the
    paper's 1.20 is the mean of the questions' own densities, which is larger than the density of the means.
    """
    entities, distinct = _entities_and_triples(triples)
    return 100 * distinct / (entities * (entities - 1)) if entities > 1 else None


def triple_figures(graphs: Iterable[Sequence[Triple]]) -> GraphStatistics:
    """`graphs`: the triples of each question's passages. Equal triples of two passages count once."""
    sizes = [(*_entities_and_triples(graph), density(graph)) for graph in graphs]  # of each its figures alone
    return GraphStatistics(
        len(sizes),
        _mean(entities for entities, _, _ in sizes),
        _mean(triples for _, triples, _ in sizes),
        _mean(dense for _, _, dense in sizes if dense is not None),
    )


@dataclass(frozen=True, slots=True)
class ReadChains:
    """Of one answer of `method=trace`: what was to be found, the evidence, the triples of each chain that was read."""

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
    """A few passages may fail: they count as empty and are reported. Above 5 % there is an error to raise."""
    if len(failed) <= MAX_FAILED * attempted:
        return None
    return EngineError(
        f"extraction failed for {len(failed)} of {attempted} passages, first {failed[0].title!r}: {failed[0].error}; "
        "what worked is kept, the same command tries the others again"
    )


def _entities_and_triples(triples: Sequence[Triple]) -> tuple[int, int]:
    distinct = {(triple.head, triple.relation, triple.tail) for triple in triples}
    return len({entity for head, _, tail in distinct for entity in (head, tail)}), len(distinct)


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return fmean(listed) if listed else None
