"""Graphs of triples: statistics per question as in Table 5 of the TRACE paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from kgqa.artifacts.metrics import Chains
from kgqa.errors import EngineError
from kgqa.kg.store import Extraction
from kgqa.types import Triple

MAX_FAILED = 0.05  # share of failed passages from which on a graph is of no use for an experiment


def density(triples: Sequence[Triple]) -> float | None:
    """Return triples over ordered pairs of distinct entities, in percent; None for fewer than two entities.

    This reading of "density" gives the order of Table 5: 79.04 triples over 83.63 entities are 1.14. The paper has
    1.20 because the mean of densities is larger than the density of the means.
    """
    entities, distinct = _entities_and_triples(triples)
    return 100 * distinct / (entities * (entities - 1)) if entities > 1 else None


def graph_statistics(graphs: Iterable[Sequence[Triple]]) -> dict[str, float | None]:
    """Return means over one graph per question. Equal triples of two passages count once.

    The density needs two entities; it is None if no question has them.
    """
    sizes = [(*_entities_and_triples(graph), density(graph)) for graph in graphs]
    return {
        "entities_per_question": _mean(entities for entities, _, _ in sizes),
        "triples_per_question": _mean(triples for _, triples, _ in sizes),
        "density_percent": _mean(dense for _, _, dense in sizes if dense is not None),
    }


class ReadChains(NamedTuple):
    """One answer of `method=trace`: gold passages, evidence, and the number of triples of each chain of the reader."""

    support: frozenset[str]
    evidence: tuple[str, ...]
    lengths: tuple[int, ...]


def chain_statistics(answered: Sequence[ReadChains]) -> Chains:
    """Return means over questions, None if no question has the quantity.

    The length is that of non-empty chains, of all questions together. Evidence is the paper's "relevant documents". Its
    error rate is the percentage that is not support.
    """
    return Chains(
        length=_mean(length for answer in answered for length in answer.lengths if length),
        documents_per_question=_mean(len(answer.evidence) for answer in answered),
        document_error_rate_percent=_mean(
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


def _entities_and_triples(triples: Sequence[Triple]) -> tuple[int, int]:
    distinct = {(triple.head, triple.relation, triple.tail) for triple in triples}
    return len({entity for head, _, tail in distinct for entity in (head, tail)}), len(distinct)


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return fmean(listed) if listed else None
