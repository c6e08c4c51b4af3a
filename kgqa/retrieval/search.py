"""Answers `Search` from an opened index: whole corpus, titles or a pool; passages of one text are given once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kgqa.calls import Search
from kgqa.errors import ConfigError
from kgqa.protocols import Finder, Query, Retriever
from kgqa.retrieval.passages import StoredPassages, text_key
from kgqa.types import Json, Passage
from kgqa.util.fs import explain_storage_errors

POOLS_KEPT = 256  # above the questions a run has at once, so that each finds its pool again
SPARE = 8  # more passages fetched than wanted, where some have one text


class PassageIndex:
    """A retriever's finder over a stored corpus. Calls of one scope reach the retriever as one batch."""

    def __init__(
        self, corpus: Mapping[str, Any], passages: StoredPassages, retriever: Retriever, finder: Finder
    ) -> None:
        self.corpus = corpus  # count and hash, see `passages.Corpus`
        self.passages = passages
        self._retriever = retriever
        self._whole = _Scope(passages, finder, repeats=corpus["equal_texts"] > 0)
        self._pools = _Pools(retriever)

    def identity(self) -> Mapping[str, Json]:
        retriever = dict(self._retriever.identity())
        return {"retriever": retriever, "corpus": self.corpus["hash"], "passages": self.corpus["count"]}

    def search(self, calls: Sequence[Search]) -> Sequence[tuple[Passage, ...]]:
        """Return the best first, equal scores in the corpus' order; of passages with one text (case apart) the best
        only.

        Raises:
            ConfigError: a call has a pool and the retriever cannot search pools.
        """
        replies: list[tuple[Passage, ...]] = [()] * len(calls)
        whole = [place for place, call in enumerate(calls) if call.pool is None]
        for place, passages in zip(
            whole, self._whole.find([self._query(calls[number]) for number in whole]), strict=True
        ):
            replies[place] = passages
        for place, call in enumerate(calls):
            if call.pool:
                (replies[place],) = self._pools(call.pool).find([Query(call.query, call.k)])
        return replies

    def find_titled(self, title: str) -> Sequence[Passage]:
        return [self.passages[place] for place in self.passages.find_titled(title)]

    def close(self) -> None:
        self._pools.close()
        self._whole.finder.close()
        self.passages.close()

    def _query(self, call: Search) -> Query:
        if call.titles is None:
            return Query(call.query, call.k)
        places = {place for title in call.titles for place in self.passages.find_titled(title)}
        return Query(call.query, call.k, tuple(sorted(places)))


class PoolIndex:
    """Answers searches in pools alone: nothing has to be indexed before."""

    def __init__(self, retriever: Retriever) -> None:
        self._retriever = retriever
        self._pools = _Pools(retriever)

    def identity(self) -> Mapping[str, Json]:
        return {"retriever": dict(self._retriever.identity()), "corpus": None}

    def search(self, calls: Sequence[Search]) -> Sequence[tuple[Passage, ...]]:
        """Search as `PassageIndex.search` does. Every call has a pool."""
        return [self._pools(call.pool).find([Query(call.query, call.k)])[0] if call.pool else () for call in calls]

    def find_titled(self, title: str) -> Sequence[Passage]:  # noqa: ARG002 - a pool holds what its question came with
        return ()

    def close(self) -> None:
        self._pools.close()


@dataclass(frozen=True)
class _Scope:
    """Passages and the finder over them."""

    passages: Sequence[Passage]
    finder: Finder
    repeats: bool  # some passages have the text of another one

    def find(self, queries: Sequence[Query]) -> list[tuple[Passage, ...]]:
        """Return passages of each query, those that repeat the text of a better one left out and replaced."""
        results: list[tuple[Passage, ...]] = [()] * len(queries)
        fetch = {place: query.k + SPARE * self.repeats for place, query in enumerate(queries) if _can_find(query)}
        while fetch:
            fetched = [replace(queries[place], k=count) for place, count in fetch.items()]
            again = {}
            for (place, count), places in zip(fetch.items(), self.finder.find(fetched), strict=True):
                distinct = self._distinct(places)
                if self.repeats and len(distinct) < queries[place].k and len(places) >= count:
                    again[place] = 4 * count
                results[place] = tuple(distinct[: queries[place].k])
            fetch = again
        return results

    def _distinct(self, places: Sequence[int]) -> list[Passage]:
        ranked = [self.passages[place] for place in places]
        if not self.repeats:
            return ranked
        best: dict[str, Passage] = {}
        for passage in ranked:
            best.setdefault(text_key(passage), passage)
        return list(best.values())


class _Pools:
    """Small indexes of the pools in use, the least recently used are dropped first."""

    def __init__(self, retriever: Retriever) -> None:
        self._retriever = retriever
        self._kept: OrderedDict[tuple[str, ...], tuple[_Scope, TemporaryDirectory[str]]] = OrderedDict()

    def __call__(self, pool: tuple[Passage, ...]) -> _Scope:
        key = tuple(passage.id for passage in pool)
        if key not in self._kept:
            self._kept[key] = self._build(pool)
        self._kept.move_to_end(key)
        while len(self._kept) > POOLS_KEPT:
            self._drop(next(iter(self._kept)))
        return self._kept[key][0]

    def close(self) -> None:
        for key in list(self._kept):
            self._drop(key)

    def _build(self, pool: tuple[Passage, ...]) -> tuple[_Scope, TemporaryDirectory[str]]:
        if not self._retriever.pools:
            name = type(self._retriever).__name__
            raise ConfigError(f"retriever {name} cannot search a question's own passages; choose another, e.g. bm25")
        with explain_storage_errors(Path("the folder for temporary files")):
            # an open index looks at its folder from a thread of its own, and may put a lock into it to the last
            folder = TemporaryDirectory(prefix="kgqa-pool-", ignore_cleanup_errors=True)
        self._retriever.build(pool, Path(folder.name), lambda _: None)
        return _Scope(pool, self._retriever.open(pool, Path(folder.name)), repeats=True), folder

    def _drop(self, key: tuple[str, ...]) -> None:
        scope, folder = self._kept.pop(key)
        scope.finder.close()
        folder.cleanup()


def _can_find(query: Query) -> bool:
    return query.k > 0 and bool(query.text.strip()) and query.among != ()
