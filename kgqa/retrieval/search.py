"""Answer `Search` from an opened index: whole corpus, titles or a pool; passages of one text are returned once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from kgqa.calls import Fact, Facts, Locate, Search
from kgqa.errors import ConfigError
from kgqa.identity.component import identity_of
from kgqa.protocols import EntityFinder, FactFinder, Finder, Query, Rankings, Retriever, TreeFinder
from kgqa.retrieval.passages import StoredPassages, text_key
from kgqa.types import JsonObject, Passage
from kgqa.util.fs import explain_storage_errors

# above the questions that a run has at once, so that each finds its pool again
MOST_POOLS = 256
# more passages fetched than wanted, because some have one text
SPARE = 8
Scores = NDArray[np.float64]
# positions with their scores, best first
Scored = Sequence[tuple[int, float]]


class PoolIndex:
    """Answer searches in pools. Their small indexes are built on demand. The least recently used are dropped first."""

    def __init__(self, retriever: Retriever) -> None:
        self._retriever = retriever
        self._pools: OrderedDict[tuple[str, ...], tuple[_Scope, TemporaryDirectory[str]]] = (
            OrderedDict()
        )

    def loads(self) -> JsonObject:
        return {"retriever": identity_of(self._retriever), "corpus": None}

    def search(self, calls: Sequence[Search]) -> Sequence[tuple[Passage, ...]]:
        """Return the best first, equal scores in the pool's order; of passages with one text (case apart) the best.

        Raises:
            ConfigError: the retriever cannot search pools.
        """
        results: list[tuple[Passage, ...]] = [()] * len(calls)
        batches: defaultdict[_Scope, list[tuple[int, Query]]] = defaultdict(list)
        for position, call in enumerate(calls):
            if scope := self._find_scope(call.pool):
                if call.positions is not None:
                    results[position] = scope.read(call.positions)
                elif call.keywords is None:
                    batches[scope].append((position, self._query(call)))
                else:
                    results[position] = scope.find_keywords(call.keywords, self._query(call))
        for scope, batch in batches.items():
            rankings = scope.find([query for _, query in batch])
            for (position, _), passages in zip(batch, rankings, strict=True):
                results[position] = passages
        return results

    def locate(self, calls: Sequence[Locate]) -> Sequence[tuple[int, ...]]:
        """Return the place of each passage of each call in its scope, -1 for unknown ones."""
        return [
            tuple(self._locate(passage, call.pool) for passage in call.passages) for call in calls
        ]

    def _locate(self, passage: Passage, pool: tuple[Passage, ...] | None) -> int:
        return pool.index(passage) if pool and passage in pool else -1

    def find_facts(self, calls: Sequence[Facts]) -> Sequence[tuple[Fact, ...]]:
        return [
            scope.find_facts(call) if (scope := self._find_scope(call.pool)) else ()
            for call in calls
        ]

    def find_titled(self, title: str) -> Sequence[Passage]:  # noqa: ARG002 - a pool holds what its question came with
        return ()

    def find_leaves(self, ids: Collection[str]) -> Sequence[Passage] | None:  # noqa: ARG002 - pools have none
        """Return the passages under retrieved summaries. None: the corpus has no summaries."""
        return None

    def has_entities(self, text: str) -> bool | None:  # noqa: ARG002 - pools differ
        """Return whether the corpus has an entity of a text. None: its retriever does not need entities."""
        return None

    def close(self) -> None:
        while self._pools:
            self._drop_oldest()

    def _query(self, call: Search) -> Query:
        return Query(call.query, call.k, facts=call.facts)

    def _find_scope(self, pool: tuple[Passage, ...] | None) -> _Scope | None:
        """Return where to search, None if there is nothing."""
        if not pool:
            return None
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
            raise ConfigError(
                f"retriever {name} cannot search a question's own passages. Choose another, e.g. bm25"
            )
        with explain_storage_errors(Path("the folder for temporary files")):
            # a thread of an open index can still write a lock file into the folder
            folder = TemporaryDirectory(prefix="kgqa-pool-", ignore_cleanup_errors=True)
        self._retriever.build(pool, Path(folder.name), lambda _: None)
        return _Scope(pool, self._retriever.open(pool, Path(folder.name)), repeats=True), folder

    def _drop_oldest(self) -> None:
        _, (scope, folder) = self._pools.popitem(last=False)
        scope.finder.close()
        folder.cleanup()


@runtime_checkable
class ServedRetriever(Protocol):
    """A retriever of a server's corpus. The dataset's corpus is not read."""

    def open_server(self) -> PoolIndex:
        """Return what answers the searches of a run."""


class PassageIndex(PoolIndex):
    """Answer searches in a stored corpus, too. Searches in the same passages reach the retriever as one batch.

    corpus: count and hash, see `passages.Corpus`.
    """

    def __init__(
        self,
        retriever: Retriever,
        corpus: Mapping[str, Any],
        passages: StoredPassages,
        finder: Finder,
    ) -> None:
        super().__init__(retriever)
        self.corpus, self.passages = corpus, passages
        self._whole = _Scope(passages, finder, repeats=corpus["equal_texts"] > 0)

    def loads(self) -> JsonObject:
        # a later index of the same corpus can lack fewer
        lacks = {key: self.corpus[key] for key in ("unmatched", "failed") if key in self.corpus}
        return {
            **super().loads(),
            "corpus": self.corpus["hash"],
            "passages": self.corpus["count"],
            **lacks,
        }

    def find_titled(self, title: str) -> Sequence[Passage]:
        return [self.passages[position] for position in self.passages.find_titled(title)]

    def find_leaves(self, ids: Collection[str]) -> Sequence[Passage] | None:
        finder = self._whole.finder
        return finder.find_leaves(ids) if isinstance(finder, TreeFinder) else None

    def has_entities(self, text: str) -> bool | None:
        finder = self._whole.finder
        return finder.has_entities(text) if isinstance(finder, EntityFinder) else None

    def close(self) -> None:
        super().close()
        self._whole.finder.close()
        self.passages.close()
        # and the memory of the finder, which can be a GPU's
        del self._whole

    def _find_scope(self, pool: tuple[Passage, ...] | None) -> _Scope | None:
        return self._whole if pool is None else super()._find_scope(pool)

    def _locate(self, passage: Passage, pool: tuple[Passage, ...] | None) -> int:
        if pool is not None:
            return super()._locate(passage, pool)
        places = self.passages.find_titled(passage.title)
        return next((place for place in places if self.passages[place].id == passage.id), -1)

    def _query(self, call: Search) -> Query:
        query = super()._query(call)
        if call.pool is not None or call.titles is None:
            return query
        positions = {
            position for title in call.titles for position in self.passages.find_titled(title)
        }
        return replace(query, among=tuple(sorted(positions)))


@dataclass(frozen=True, eq=False)
class _Scope:
    """Passages and the finder over them."""

    passages: Sequence[Passage]
    finder: Finder
    # some passages have the text of another one
    repeats: bool

    def find(self, queries: Sequence[Query]) -> list[tuple[Passage, ...]]:
        """Return the passages of each query; one that repeats the text of a better one is replaced by the next."""
        results: list[tuple[Passage, ...]] = [()] * len(queries)
        fetch = {
            position: query.k + SPARE * self.repeats
            for position, query in enumerate(queries)
            if _can_find(query)
        }
        while fetch:
            fetched = [replace(queries[position], k=count) for position, count in fetch.items()]
            again = {}
            for (position, count), positions in zip(
                fetch.items(), self.finder.find(fetched), strict=True
            ):
                distinct = self._distinct(positions)
                if self.repeats and len(distinct) < queries[position].k and len(positions) >= count:
                    again[position] = 4 * count
                results[position] = tuple(distinct[: queries[position].k])
            fetch = again
        return results

    def read(self, positions: Sequence[int]) -> tuple[Passage, ...]:
        """Return the passages at these places, without unknown ones."""
        return tuple(
            self.passages[position] for position in positions if 0 <= position < len(self.passages)
        )

    def find_keywords(self, keywords: Sequence[str], query: Query) -> tuple[Passage, ...]:
        """Return the best by A-RAG's score: the sum over keywords of occurrences × characters, ignoring case."""
        folded = [keyword.casefold() for keyword in keywords if keyword.strip()]
        scores = np.array(
            [sum(text.count(each) * len(each) for each in folded) for text in self._keyword_texts]
        )
        return tuple(
            self._distinct(rank_found(scores, replace(query, k=query.k + SPARE * self.repeats)))[
                : query.k
            ]
        )

    def find_facts(self, call: Facts) -> tuple[Fact, ...]:
        """Return the facts of one call, none if the retriever has no facts."""
        query = Query(call.query, call.k)
        return (
            self.finder.find_facts(query)
            if isinstance(self.finder, FactFinder) and _can_find(query)
            else ()
        )

    @cached_property
    def _keyword_texts(self) -> list[str]:
        return [f"{passage.title}\n{passage.text}".casefold() for passage in self.passages]

    def _distinct(self, positions: Sequence[int]) -> list[Passage]:
        ranked = [self.passages[position] for position in positions]
        if not self.repeats:
            return ranked
        best: dict[str, Passage] = {}
        for passage in ranked:
            best.setdefault(text_key(passage), passage)
        return list(best.values())


def _can_find(query: Query) -> bool:
    return query.k > 0 and bool(query.text.strip()) and query.among != ()


class IndexedRetriever(ABC):
    """A retriever that reads its files once, for the first query, and then ranks by itself."""

    @property
    def pools(self) -> bool:
        return True

    def open(self, passages: Sequence[Passage], folder: Path) -> OpenedIndex:
        return OpenedIndex(self, passages, folder)

    def load(self, folder: Path) -> Any:  # noqa: ARG002 - the interface
        """Return what `build` wrote into the folder."""
        return None

    @abstractmethod
    def rank(self, index: OpenedIndex, queries: Sequence[Query]) -> Rankings:
        """Return the positions for each query, see `Finder.find`."""


@dataclass(frozen=True)
class LoadedPassages(Sequence[Passage]):
    """Texts of an index that are no passages of the corpus. They are loaded at their first use."""

    load: Callable[[], Sequence[Passage]]

    @cached_property
    def _loaded(self) -> Sequence[Passage]:
        return self.load()

    def __len__(self) -> int:
        return len(self._loaded)

    def __getitem__(self, position: Any) -> Any:
        return self._loaded[position]


@dataclass(frozen=True)
class OpenedIndex(Finder):
    """An index of an `IndexedRetriever`. finders: of the parts of a composite, by name."""

    retriever: Any
    passages: Sequence[Passage]
    folder: Path
    finders: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def data(self) -> Any:
        return self.retriever.load(self.folder)

    def find(self, queries: Sequence[Query]) -> Rankings:
        rankings: Rankings = self.retriever.rank(self, queries)
        return rankings

    def find_scored(self, queries: Sequence[Query]) -> Sequence[Scored]:
        """Return the positions with their scores, which `Bm25` and `Dense` have."""
        scored: Sequence[Scored] = self.retriever.rank_scored(self, queries)
        return scored

    def close(self) -> None:
        for finder in self.finders.values():
            finder.close()


def normalize_scores(scored: Scored, count: int) -> Scores:
    """Return the scores of `count` passages from 0, the lowest score and those that were not found, to 1, the best."""
    scores = np.zeros(count)
    if scored:
        values = np.array([score for _, score in scored])
        span = values.max() - values.min()
        scores[[position for position, _ in scored]] = (
            (values - values.min()) / span if span else 1.0
        )
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
    order = candidates[
        np.lexsort((candidates if ties == "first" else -candidates, -scores[candidates]))
    ][:k]
    ranked: list[int] = (order if positions is None else positions[order]).tolist()
    return ranked


def rank_found(scores: Scores, query: Query, ties: Literal["first", "last"] = "first") -> list[int]:
    """Return the best positions of a query with scores above 0, from the scores of all passages, best first."""
    positions = (
        np.arange(len(scores)) if query.among is None else np.array(query.among, dtype=np.int64)
    )
    positions = positions[scores[positions] > 0]
    return rank_positions(scores[positions], query.k, positions, ties=ties)


def fill_positions(positions: Sequence[int], query: Query, count: int) -> list[int]:
    """Append the passages that were not found, the last first, up to `k`, as KGP's released code."""
    others = range(count) if query.among is None else query.among
    rest = (position for position in reversed(others) if position not in set(positions))
    return [*positions, *islice(rest, max(0, query.k - len(positions)))]
