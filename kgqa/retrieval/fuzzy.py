"""Levenshtein distance (rapidfuzz): a ranker, and the fuzzy half of KGP's KNN baseline (Wang et al., AAAI 2024)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from kgqa.calls import Rank
from kgqa.protocols import Finder, Query
from kgqa.retrieval.topk import best_places
from kgqa.types import Json, Passage
from kgqa.util.optional_deps import require_packages

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Levenshtein:
    """1 − distance / length of the longer of query and text, letter case apart; between 0 and 1."""

    def identity(self) -> Mapping[str, Json]:
        return {"ranker": "levenshtein", "version": 1}

    def score(self, calls: Sequence[Rank]) -> Sequence[tuple[float, ...]]:
        return [_scores(call) for call in calls]


@dataclass(frozen=True)
class Fuzzy:
    """Passages by Levenshtein similarity of the query and their text, as `Levenshtein` scores it.

    Compares the query with every passage it may find: for hundreds or thousands of passages. Nothing is written.
    """

    pools: ClassVar[bool] = True

    def identity(self) -> Mapping[str, Json]:
        return {"retriever": "fuzzy", "version": 1}

    def build(self, passages: Sequence[Passage], folder: Path, advance: Callable[[int], None]) -> None:  # noqa: ARG002
        _library()
        advance(len(passages))

    def open(self, passages: Sequence[Passage], folder: Path) -> Finder:  # noqa: ARG002 - it holds nothing
        return _Finder(passages)


@dataclass
class _Finder:
    passages: Sequence[Passage]

    def find(self, queries: Sequence[Query]) -> Sequence[Sequence[int]]:
        return [self._find(query) for query in queries]

    def close(self) -> None:
        self.__dict__.pop("_texts", None)

    @cached_property
    def _texts(self) -> list[str]:
        return [passage.text.lower() for passage in self.passages]

    def _find(self, query: Query) -> list[int]:
        import numpy as np

        if query.among is None:
            return best_places(_similarities(query.text.lower(), self._texts), query.k)
        texts = [self._texts[place] for place in query.among]
        return best_places(_similarities(query.text.lower(), texts), query.k, np.array(query.among, dtype=np.int64))


def _scores(call: Rank) -> tuple[float, ...]:
    similarities = _similarities(call.query.lower(), [text.lower() for text in call.texts])
    return tuple(round(float(score), 6) for score in similarities)


def _similarities(query: str, texts: Sequence[str]) -> NDArray[np.float64]:
    """Return one for each text, as they are written."""
    import numpy as np

    process, distance = _library()
    scores: NDArray[np.float64] = process.cdist(
        [query], texts, scorer=distance.Levenshtein.normalized_similarity, dtype=np.float64
    )[0]
    return scores


@cache
def _library() -> tuple[Any, Any]:
    require_packages("fuzzy", "rapidfuzz")
    from rapidfuzz import distance, process

    return process, distance
