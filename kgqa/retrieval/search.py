"""Answer `Search` from an opened index: whole corpus, titles or a pool; passages of one text are returned once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kgqa.calls import Fact, Facts, Search
from kgqa.errors import ConfigError
from kgqa.protocols import FactFinder, Finder, Query, Retriever
from kgqa.retrieval.passages import StoredPassages, text_key
from kgqa.types import JsonObject, Passage
from kgqa.util.fs import explain_storage_errors

MOST_POOLS = 256  # above the questions that a run has at once, so that each finds its pool again
SPARE = 8  # more passages fetched than wanted, because some have one text
Scores = NDArray[np.float64]
Scored = Sequence[tuple[int, float]]  # positions with their scores, best first


class PoolIndex:
    """Answer searches in pools. Their small indexes are built on demand. The least recently used are dropped first."""

    def __init__(self, retriever: Retriever) -> None:
        self._retriever = retriever
        self._pools: OrderedDict[tuple[str, ...], tuple[_Scope, TemporaryDirectory[str]]] = OrderedDict()

    def identity(self) -> JsonObject:
        return {"retriever": dict(self._retriever.identity()), "corpus": None}

    def search(self, calls: Sequence[Search]) -> Sequence[tuple[Passage, ...]]:
        """Return the best first, equal scores in the pool's order; of passages with one text (case apart) the best.

        Raises:
            ConfigError: the retriever cannot search pools.
        """
        queries = [Query(call.query, call.k, facts=call.facts) for call in calls]
        return [
            self._pool(call.pool).search(query, call) if call.pool else ()
            for call, query in zip(calls, queries, strict=True)
        ]

    def find_facts(self, calls: Sequence[Facts]) -> Sequence[tuple[Fact, ...]]:
        return [self._pool(call.pool).find_facts(call) if call.pool else () for call in calls]

    def find_titled(self, title: str) -> Sequence[Passage]:  # noqa: ARG002 - a pool holds what its question came with
        return ()

    def close(self) -> None:
        while self._pools:
            self._drop_oldest()

    def _pool(self, pool: tuple[Passage, ...]) -> _Scope:
        key = tuple(passage.id for passage in pool)
        if key not in self._pools:
            self._pools[key] = self._build(pool)
        self._pools.move_to_end(key)
        while len(self._pools) > MOST_POOLS:
            self._drop_oldest()
        return self._pools[key][0]

    def _build(self, pool: tuple[Passage, ...]) -> tuple[_Scope, TemporaryDirectory[str]]:
        if not self._retriever.pools:
            name = type(self._retriever).__name__
            raise ConfigError(f"retriever {name} cannot search a question's own passages. Choose another, e.g. bm25")
        with explain_storage_errors(Path("the folder for temporary files")):
            # a thread of an open index can still write a lock file into the folder
            folder = TemporaryDirectory(prefix="kgqa-pool-", ignore_cleanup_errors=True)
        self._retriever.build(pool, Path(folder.name), lambda _: None)
        return _Scope(pool, self._retriever.open(pool, Path(folder.name)), repeats=True), folder

    def _drop_oldest(self) -> None:
        _, (scope, folder) = self._pools.popitem(last=False)
        scope.finder.close()
        folder.cleanup()


class PassageIndex(PoolIndex):
    """Answer searches in a stored corpus, too. Searches of the corpus reach the retriever as one batch.

    corpus: count and hash, see `passages.Corpus`.
    """

    def __init__(
        self, retriever: Retriever, corpus: Mapping[str, Any], passages: StoredPassages, finder: Finder
    ) -> None:
        super().__init__(retriever)
        self.corpus, self.passages = corpus, passages
        self._scope = _Scope(passages, finder, repeats=corpus["equal_texts"] > 0)

    def identity(self) -> JsonObject:
        retriever = dict(self._retriever.identity())
        return {"retriever": retriever, "corpus": self.corpus["hash"], "passages": self.corpus["count"]}

    def search(self, calls: Sequence[Search]) -> Sequence[tuple[Passage, ...]]:
        retrieved = [call for call in calls if call.pool is None and call.keywords is None]
        found = iter(self._scope.find([self._query(call) for call in retrieved]))
        return [next(found) if call in retrieved else self._search_alone(call) for call in calls]

    def find_facts(self, calls: Sequence[Facts]) -> Sequence[tuple[Fact, ...]]:
        return [
            self._scope.find_facts(call) if call.pool is None else super(PassageIndex, self).find_facts([call])[0]
            for call in calls
        ]

    def find_titled(self, title: str) -> Sequence[Passage]:
        return [self.passages[position] for position in self.passages.find_titled(title)]

    def close(self) -> None:
        super().close()
        self._scope.finder.close()
        self.passages.close()
        del self._scope  # and the memory of the finder, which can be a GPU's

    def _search_alone(self, call: Search) -> tuple[Passage, ...]:
        return super().search([call])[0] if call.pool is not None else self._scope.search(self._query(call), call)

    def _query(self, call: Search) -> Query:
        if call.titles is None:
            return Query(call.query, call.k, facts=call.facts)
        positions = {position for title in call.titles for position in self.passages.find_titled(title)}
        return Query(call.query, call.k, tuple(sorted(positions)), call.facts)


@dataclass(frozen=True)
class _Scope:
    """Passages and the finder over them."""

    passages: Sequence[Passage]
    finder: Finder
    repeats: bool  # some passages have the text of another one

    def find(self, queries: Sequence[Query]) -> list[tuple[Passage, ...]]:
        """Return the passages of each query; one that repeats the text of a better one is replaced by the next."""
        results: list[tuple[Passage, ...]] = [()] * len(queries)
        fetch = {position: query.k + SPARE * self.repeats for position, query in enumerate(queries) if _can_find(query)}
        while fetch:
            fetched = [replace(queries[position], k=count) for position, count in fetch.items()]
            again = {}
            for (position, count), positions in zip(fetch.items(), self.finder.find(fetched), strict=True):
                distinct = self._distinct(positions)
                if self.repeats and len(distinct) < queries[position].k and len(positions) >= count:
                    again[position] = 4 * count
                results[position] = tuple(distinct[: queries[position].k])
            fetch = again
        return results

    def search(self, query: Query, call: Search) -> tuple[Passage, ...]:
        """Return the passages of one call, found by its keywords if it has some."""
        if call.keywords is None:
            return self.find([query])[0]
        scores = count_keywords(self._folded_texts, call.keywords)
        if query.among is not None:
            scores = [score if position in query.among else 0 for position, score in enumerate(scores)]
        positions = sorted(
            (position for position, score in enumerate(scores) if score), key=lambda position: -scores[position]
        )
        return tuple(self._distinct(positions[: query.k + SPARE * self.repeats])[: query.k])

    def find_facts(self, call: Facts) -> tuple[Fact, ...]:
        """Return the facts of one call, none if the retriever has no facts."""
        query = Query(call.query, call.k)
        return self.finder.find_facts(query) if isinstance(self.finder, FactFinder) and _can_find(query) else ()

    @cached_property
    def _folded_texts(self) -> list[str]:
        return [f"{passage.title}\n{passage.text}".casefold() for passage in self.passages]

    def _distinct(self, positions: Sequence[int]) -> list[Passage]:
        ranked = [self.passages[position] for position in positions]
        if not self.repeats:
            return ranked
        best: dict[str, Passage] = {}
        for passage in ranked:
            best.setdefault(text_key(passage), passage)
        return list(best.values())


def count_keywords(texts: Sequence[str], keywords: Sequence[str]) -> list[int]:
    """Return the score of each case-folded text (A-RAG): the sum over keywords of occurrences × characters."""
    folded = [keyword.casefold() for keyword in keywords if keyword.strip()]
    return [sum(text.count(keyword) * len(keyword) for keyword in folded) for text in texts]


def _can_find(query: Query) -> bool:
    return query.k > 0 and bool(query.text.strip()) and query.among != ()


def normalize_scores(scored: Scored, count: int) -> Scores:
    """Return the scores of `count` passages from 0, the lowest score and those that were not found, to 1, the best."""
    scores = np.zeros(count)
    if scored:
        values = np.array([score for _, score in scored])
        span = values.max() - values.min()
        scores[[position for position, _ in scored]] = (values - values.min()) / span if span else 1.0
    return scores


def rank_positions(
    scores: NDArray[np.floating[Any]],
    k: int,
    positions: NDArray[np.integer[Any]] | None = None,
    *,
    ties: Literal["first", "last"] = "first",
) -> list[int]:
    """Return the positions of the `k` highest scores, best first.

    Args:
        positions: the position of each score, ascending; None: scores[i] is position i's.
        ties: which position of equal scores comes first.
    """
    candidates = np.arange(len(scores))
    if 0 < k < len(scores):
        least = np.partition(scores, len(scores) - k)[len(scores) - k]
        candidates = np.flatnonzero(scores >= least)  # ties at the end included
    order = candidates[np.lexsort((candidates if ties == "first" else -candidates, -scores[candidates]))][:k]
    return [int(position) for position in (order if positions is None else positions[order])]


def rank_found(scores: Scores, query: Query, ties: Literal["first", "last"] = "first") -> list[int]:
    """Return the best positions of a query with scores above 0, from the scores of all passages, best first."""
    positions = np.arange(len(scores)) if query.among is None else np.array(query.among, dtype=np.int64)
    positions = positions[scores[positions] > 0]
    return rank_positions(scores[positions], query.k, positions, ties=ties)


def fill_positions(found: Sequence[int], query: Query, count: int) -> list[int]:
    """Append the passages that were not found, the last first, up to `k`, as KGP's released code."""
    others = range(count) if query.among is None else query.among
    rest = (position for position in reversed(others) if position not in set(found))
    return [*found, *islice(rest, max(0, query.k - len(found)))]
