"""Graphs of triples: statistics per question as in Table 5 of the TRACE paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from kgqa.errors import EngineError, has_too_many_failures
from kgqa.types import Triple


class GraphSize(NamedTuple):
    """The number of distinct entities and triples of a graph. Equal triples of two passages count once."""

    entities: int
    triples: int

    @classmethod
    def of(cls, triples: Iterable[Triple]) -> GraphSize:
        distinct = {(triple.head, triple.relation, triple.tail) for triple in triples}
        return cls(
            len({entity for head, _, tail in distinct for entity in (head, tail)}), len(distinct)
        )

    @property
    def density(self) -> float | None:
        """Return triples per ordered pair of entities in percent, or None for fewer than two entities.

        Table 5 has 79.04 triples, 83.63 entities and 1.20: the mean of densities exceeds the density of the means,
        1.14.
        """
        return (
            100 * self.triples / (self.entities * (self.entities - 1))
            if self.entities > 1
            else None
        )


def graph_statistics(sizes: Sequence[GraphSize]) -> dict[str, float | None]:
    """Return means over one graph per question."""
    return {
        "entities_per_question": _mean(size.entities for size in sizes),
        "triples_per_question": _mean(size.triples for size in sizes),
        "density_percent": _mean(dense for size in sizes if (dense := size.density) is not None),
    }


class ReadChains(NamedTuple):
    """One answer of `method=trace`: gold passages, evidence, and the number of triples of each chain of the reader."""

    support: frozenset[str]
    evidence: tuple[str, ...]
    lengths: tuple[int, ...]


def chain_statistics(answered: Sequence[ReadChains]) -> dict[str, float | None]:
    """Return means over questions: the length of non-empty chains, and the evidence ("relevant documents")."""
    errors = (
        100
        * sum(passage not in answer.support for passage in answer.evidence)
        / len(answer.evidence)
        for answer in answered
        if answer.evidence
    )
    return {
        "length": _mean(length for answer in answered for length in answer.lengths if length),
        "documents_per_question": _mean(len(answer.evidence) for answer in answered),
        "document_error_rate_percent": _mean(errors),
    }


def too_many_failed(failed: Sequence[str], attempted: int) -> EngineError | None:
    """Return an error if too many passages failed. Otherwise failed passages count as empty.

    failed: the title and the error of each.
    """
    if not has_too_many_failures(len(failed), attempted):
        return None
    return EngineError(
        f"extraction failed for {len(failed)} of {attempted} passages, first {failed[0]}. "
        "Run the same command again: it extracts only the failed passages."
    )


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return fmean(listed) if listed else None
