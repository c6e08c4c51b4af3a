"""Dense retrieval: the passages whose embeddings have the largest inner product with the query's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, overload

from kgqa.errors import ConfigError, DataError
from kgqa.protocols import Query
from kgqa.retrieval import faiss_search
from kgqa.retrieval.biencoder import Encoder, relevance, remembering
from kgqa.retrieval.encoders import SentenceTransformer
from kgqa.retrieval.faiss_search import Faiss, FaissIndex
from kgqa.retrieval.nearest import NearestVectors, Numpy, Torch
from kgqa.retrieval.topk import best_places
from kgqa.retrieval.vectors import Shards, Vectors
from kgqa.types import Json, Passage
from kgqa.util import hub
from kgqa.util.validators import Count

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SPARE = 8  # candidates beyond k, among which the exact scores decide
GATHERED = 8_192  # vectors scored at once when a query names its places
Scored = Sequence[tuple[int, float]]  # places with their scores, best first


@dataclass(frozen=True)
class Dense:
    """Any encoder with any search. numpy, torch and flat are exact and give the same; ivf and hnsw approximate.

    encoder: a ranker's preset, or the folder or hub name of a sentence-transformers model.
    """

    encoder: Encoder | str
    separator: str  # between title and text
    backend: Literal["numpy", "torch", "flat", "ivf", "hnsw"]
    device: str  # of torch and FAISS
    storage: Literal["float32", "float16"]
    shard: Count
    lists: Count
    probes: Count
    links: Count
    build_breadth: Count
    breadth: Count

    pools: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.encoder, str | Encoder):
            raise ConfigError(
                f"retriever.encoder: {type(self.encoder).__name__} gives scores but no vectors; choose another preset"
            )

    def identity(self) -> Mapping[str, Json]:
        """Return encoder, storage and, where it approximates, the search; exact searches find the same."""
        approximate: dict[str, dict[str, Json]] = {
            "ivf": {"lists": self.lists, "probes": self.probes},
            "hnsw": {"links": self.links, "build_breadth": self.build_breadth, "breadth": self.breadth},
        }
        settings = approximate.get(self.backend)
        return {
            "retriever": "dense",
            "version": 1,
            "queries": dict(self._encoder.fingerprint("query")),
            **self._build_settings(),
            "storage": self.storage,
            "search": {"backend": self.backend, **settings} if settings else "exact",
        }

    def build(self, passages: Sequence[Passage], folder: Path, advance: Callable[[int], None]) -> None:
        """Encode what no shard holds yet. A corpus of one shard shares its vectors with rankers in memory."""
        if self._faiss:
            faiss_search.check_index()
        encoder = self._encoder
        encode = remembering(encoder).vectors if len(passages) <= self.shard else encoder.encode
        texts = _Texts(passages, self.separator)
        shards = Shards(self.shard, self.storage, self._build_settings())
        shards.write(texts, folder, partial(encode, "passage"), advance)
        if self._faiss:
            self._faiss.build(Vectors(folder, len(passages)), folder)

    def open(self, passages: Sequence[Passage], folder: Path) -> DenseFinder:
        vectors = Vectors(folder, len(passages))
        return DenseFinder(vectors, self._encoder, lambda: self._nearest(vectors))

    def _build_settings(self) -> dict[str, Json]:
        """Return what decides the vectors on disk."""
        return {"passages": dict(self._encoder.fingerprint("passage")), "separator": self.separator}

    def _nearest(self, vectors: Vectors) -> NearestVectors:
        if self._faiss:
            return Faiss(self._faiss.opened(vectors, self.device))
        return Torch(vectors, self.device) if self.backend == "torch" else Numpy(vectors)

    @property
    def _faiss(self) -> FaissIndex | None:
        if self.backend == "numpy" or self.backend == "torch":
            return None
        shape = (self.lists, self.probes, self.links, self.build_breadth, self.breadth)
        return FaissIndex(self.backend, self.storage, *shape)

    @property
    def _encoder(self) -> Encoder:
        if not isinstance(self.encoder, str):
            return self.encoder
        if "/" not in self.encoder and hub.find_encoder(self.encoder) is None:
            raise ConfigError(
                f"retriever.encoder={self.encoder}: no such folder; for a preset say "
                f"ranker@retriever.encoder={self.encoder}"
            )
        return SentenceTransformer.of(self.encoder)


class DenseFinder:
    """An opened index of vectors. The encoder and the search are loaded for the first query."""

    def __init__(self, vectors: Vectors, encoder: Encoder, nearest: Callable[[], NearestVectors]) -> None:
        self._vectors, self._encoder, self._load = vectors, encoder, nearest

    def find(self, queries: Sequence[Query]) -> Sequence[Sequence[int]]:
        return [[place for place, _ in scored] for scored in self.find_scored(queries)]

    def find_scored(self, queries: Sequence[Query]) -> Sequence[Scored]:
        """Return places with their inner products, see `biencoder.relevance`; best first, equal scores by place."""
        if not queries:
            return []
        embedded = self._embed([query.text for query in queries])
        results: list[Scored] = [()] * len(queries)
        for number, query in enumerate(queries):
            if query.among is not None:
                results[number] = self._best(embedded[number], query.among, query.k)
        whole = [number for number, query in enumerate(queries) if query.among is None]
        counts = {number: min(len(self._vectors), queries[number].k + SPARE) for number in whole}
        while counts:
            counts = self._search(queries, embedded, counts, results)
        return results

    def close(self) -> None:
        self.__dict__.pop("_nearest", None)
        self._vectors.close()

    def _search(
        self,
        queries: Sequence[Query],
        embedded: NDArray[np.float32],
        counts: Mapping[int, int],
        results: list[Scored],
    ) -> dict[int, int]:
        """Fill in what is found among so many candidates; gives the queries that need more of them, and how many."""
        most, more = max(counts.values()), {}
        for number, places in zip(counts, self._nearest(embedded[list(counts)], most), strict=True):
            candidates, k = places[places >= 0], queries[number].k
            if len(candidates) < min(k, len(self._vectors)):  # the lists that were probed hold too few
                candidates = self._exact(embedded[number : number + 1], min(most, len(self._vectors)))[0]
            scored = self._best(embedded[number], candidates, len(candidates))
            if k < len(scored) == most < len(self._vectors) and scored[k - 1][1] == scored[-1][1]:
                more[number] = min(len(self._vectors), 4 * most)  # a tie goes on beyond the candidates
            results[number] = scored[:k]
        return more

    def _best(self, query: NDArray[np.float32], places: Iterable[int], k: int) -> Scored:
        """Return the best of some places."""
        import numpy as np

        at = np.array(sorted(places), dtype=np.int64)
        parts = [at[start : start + GATHERED] for start in range(0, len(at), GATHERED)]
        scores = np.concatenate([np.empty(0), *(relevance(query, self._vectors.rows(part)) for part in parts)])
        return [(int(at[place]), float(scores[place])) for place in best_places(scores, k)]

    def _embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = remembering(self._encoder).vectors("query", texts)  # (Q, d)
        if rows.shape[1] != self._vectors.dimension:
            raise DataError(
                f"{self._vectors.folder}: vectors of {self._vectors.dimension} numbers, and the encoder gives "
                f"{rows.shape[1]}; the index is of another encoder: delete it and build it"
            )
        return rows

    @cached_property
    def _nearest(self) -> NearestVectors:
        return self._load()

    @cached_property
    def _exact(self) -> NearestVectors:
        return Numpy(self._vectors)


class _Texts(Sequence[str]):
    """The text to encode of each passage: title, separator and text, or the one that is not blank."""

    def __init__(self, passages: Sequence[Passage], separator: str) -> None:
        self._passages, self._separator = passages, separator

    def __len__(self) -> int:
        return len(self._passages)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self._text(passage) for passage in self._passages[place]]
        return self._text(self._passages[place])

    def _text(self, passage: Passage) -> str:
        return self._separator.join(part for part in (passage.title, passage.text) if part.strip())
