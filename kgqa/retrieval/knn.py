"""KGP's KNN baseline (Wang et al., AAAI 2024, supplement 8.2): half by embeddings, half by fuzzy matching."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kgqa.protocols import Finder, Query, Retriever
from kgqa.retrieval.composite import Parts
from kgqa.types import Json, Passage


@dataclass(frozen=True)
class Knn:
    """The best k/2 passages of `dense` (one more where k is odd), then the best of `fuzzy` that are not among them.

    The paper has 15 and 15. It does not say what happens to a passage in both; here the next fuzzy one takes its
    place, so that k passages are found.
    """

    dense: Retriever
    fuzzy: Retriever

    @property
    def pools(self) -> bool:
        return self._parts.pools

    def identity(self) -> Mapping[str, Json]:
        return {"retriever": "knn", **self._parts.identity()}

    def build(self, passages: Sequence[Passage], folder: Path, advance: Callable[[int], None]) -> None:
        self._parts.build(passages, folder, advance)

    def restore(self, passages: Sequence[Passage], folder: Path, advance: Callable[[int], None]) -> None:
        self._parts.restore(passages, folder, advance)

    def open(self, passages: Sequence[Passage], folder: Path) -> Finder:
        finders = self._parts.open(passages, folder)
        return _Finder(finders["dense"], finders["fuzzy"])

    @property
    def _parts(self) -> Parts:
        return Parts({"dense": self.dense, "fuzzy": self.fuzzy})


@dataclass(frozen=True)
class _Finder:
    dense: Finder
    fuzzy: Finder

    def find(self, queries: Sequence[Query]) -> Sequence[Sequence[int]]:
        by_meaning = self.dense.find([replace(query, k=(query.k + 1) // 2) for query in queries])
        by_letters = self.fuzzy.find(queries)
        return [
            list(dict.fromkeys([*meaning, *letters]))[: query.k]
            for query, meaning, letters in zip(queries, by_meaning, by_letters, strict=True)
        ]

    def close(self) -> None:
        self.dense.close()
        self.fuzzy.close()
