"""Reciprocal rank fusion of two retrievers (Cormack et al., SIGIR 2009)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kgqa.protocols import Finder, Query, Retriever
from kgqa.retrieval.composite import Parts
from kgqa.types import Json, Passage
from kgqa.util.validators import Count


@dataclass(frozen=True)
class Hybrid:
    """A passage scores the sum of 1 / (constant + its rank), ranks counted from 1; equal scores by place.

    Each retriever gives its first `depth` passages, or `k` where more are asked for. A passage that one of them did
    not give gets nothing for it.
    """

    lexical: Retriever
    dense: Retriever
    constant: Count
    depth: Count

    @property
    def pools(self) -> bool:
        return self._parts.pools

    def identity(self) -> Mapping[str, Json]:
        return {"retriever": "hybrid", "constant": self.constant, "depth": self.depth, **self._parts.identity()}

    def build(self, passages: Sequence[Passage], folder: Path, advance: Callable[[int], None]) -> None:
        self._parts.build(passages, folder, advance)

    def restore(self, passages: Sequence[Passage], folder: Path, advance: Callable[[int], None]) -> None:
        self._parts.restore(passages, folder, advance)

    def open(self, passages: Sequence[Passage], folder: Path) -> Finder:
        finders = self._parts.open(passages, folder)
        return _Finder(tuple(finders.values()), self.constant, self.depth)

    @property
    def _parts(self) -> Parts:
        return Parts({"lexical": self.lexical, "dense": self.dense})


@dataclass(frozen=True)
class _Finder:
    finders: tuple[Finder, ...]
    constant: int
    depth: int

    def find(self, queries: Sequence[Query]) -> Sequence[Sequence[int]]:
        deep = [replace(query, k=max(query.k, self.depth)) for query in queries]
        rankings = zip(*(finder.find(deep) for finder in self.finders), strict=True)
        return [fuse_ranks(ranked, self.constant)[: query.k] for query, ranked in zip(queries, rankings, strict=True)]

    def close(self) -> None:
        for finder in self.finders:
            finder.close()


def fuse_ranks(rankings: Sequence[Sequence[int]], constant: int) -> list[int]:
    """Return all places of the rankings by reciprocal rank fusion, best first, equal scores by place."""
    scores: defaultdict[int, float] = defaultdict(float)
    for ranking in rankings:
        for rank, place in enumerate(ranking, start=1):
            scores[place] += 1 / (constant + rank)
    return sorted(scores, key=lambda place: (-scores[place], place))
