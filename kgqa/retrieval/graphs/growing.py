"""Graphs whose documents come and go (KGP §8.3): the same graph as built anew, in time linear in the collection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kgqa.errors import DataError
from kgqa.retrieval.biencoder import relevance
from kgqa.retrieval.graphs.links import Links, PassageGraph, document_of, text_or_title
from kgqa.retrieval.graphs.nearest import Nearest, joined
from kgqa.types import Passage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Growing(Protocol):
    """Documents are passages of one title; they stand in the order they were added."""

    def add(self, document: Sequence[Passage]) -> None:
        """Raises DataError where a document of this title is there already, or the passages have several titles."""
        ...

    def remove(self, title: str) -> None:
        """Raises DataError where there is no document of this title."""
        ...

    @property
    def passages(self) -> tuple[Passage, ...]: ...

    def links(self) -> Links: ...


class Joinable(PassageGraph, Protocol):
    """A graph of two steps: what a passage alone decides, and the rest, which is linear in the collection."""

    def read(self, passage: Passage) -> Any: ...

    def join(self, passages: Sequence[Passage], parts: Sequence[Any]) -> Links: ...


class GrowingShared:
    """Of keywords or entities. A text is read once; a change to one document may change what others hold."""

    def __init__(self, graph: Joinable) -> None:
        self._graph = graph
        self._documents: dict[str, list[tuple[Passage, Any]]] = {}

    @property
    def passages(self) -> tuple[Passage, ...]:
        return tuple(passage for document in self._documents.values() for passage, _ in document)

    def add(self, document: Sequence[Passage]) -> None:
        title = _title_of(document, self._documents)
        self._documents[title] = [(passage, self._graph.read(passage)) for passage in document]

    def remove(self, title: str) -> None:
        _known(title, self._documents)
        del self._documents[title]

    def links(self) -> Links:
        held = [entry for document in self._documents.values() for entry in document]
        return self._graph.join([passage for passage, _ in held], [part for _, part in held])


class GrowingNearest:
    """Of nearest embeddings. A new passage is compared with all others once, O(n d); nothing else is computed anew.

    Where a removed passage was among another's nearest, that one's are searched again, O(n d) each: in the mean k for
    each removed passage. Exact: equal scores stand in the passages' order, as when all is built anew.
    """

    def __init__(self, graph: Nearest) -> None:
        import numpy as np

        self._graph = graph
        self._passages: list[Passage] = []
        self._vectors: NDArray[np.float32] = np.zeros((0, 0), np.float32)
        self._best: list[list[tuple[float, int]]] = []  # of each passage, by falling score: minus the score, the place

    @property
    def passages(self) -> tuple[Passage, ...]:
        return tuple(self._passages)

    def add(self, document: Sequence[Passage]) -> None:
        import numpy as np

        _title_of(document, {document_of(passage) for passage in self._passages})
        for passage in document:
            if not text_or_title(passage).strip():
                raise DataError(f"{passage.title!r}: a passage without title and text has no neighbours; leave it out")
        vectors = self._graph.vectors(document)
        for passage, vector in zip(document, vectors, strict=True):
            place = len(self._passages)
            scores = relevance(vector, self._vectors) if place else np.zeros(0)
            for other in range(place):
                self._offer(other, (-float(scores[other]), place))
            self._passages.append(passage)
            self._vectors = np.vstack([self._vectors, vector]) if place else vector[None]
            nearest_first = np.argsort(-scores, kind="stable")[: self._graph.k]
            self._best.append([(-float(scores[other]), int(other)) for other in nearest_first])

    def remove(self, title: str) -> None:
        import numpy as np

        _known(title, {document_of(passage) for passage in self._passages})
        kept = [place for place, passage in enumerate(self._passages) if document_of(passage) != title]
        moved = {old: new for new, old in enumerate(kept)}
        self._passages = [self._passages[place] for place in kept]
        self._vectors = self._vectors[kept]
        before, self._best = self._best, []
        for new, old in enumerate(kept):
            best = [(score, moved[other]) for score, other in before[old] if other in moved]
            if len(best) < len(before[old]):
                scores = relevance(self._vectors[new], self._vectors)
                scores[new] = -np.inf
                order = np.argsort(-scores, kind="stable")[: min(self._graph.k, len(kept) - 1)]
                best = [(-float(scores[other]), int(other)) for other in order]
            self._best.append(best)

    def links(self) -> Links:
        import numpy as np

        best = [np.array([place for _, place in neighbours], np.int64) for neighbours in self._best]
        return joined(best, np.arange(len(best)), len(best))

    def _offer(self, place: int, candidate: tuple[float, int]) -> None:
        best = self._best[place]
        if len(best) < self._graph.k or candidate < best[-1]:
            self._best[place] = sorted([*best, candidate])[: self._graph.k]


def growing(graph: Any) -> Growing:
    """An empty graph of this kind, to add documents to."""
    return GrowingNearest(graph) if isinstance(graph, Nearest) else GrowingShared(graph)


def _title_of(document: Sequence[Passage], known: Any) -> str:
    titles = {document_of(passage) for passage in document}
    if len(titles) != 1:
        raise DataError(f"a document has one title, these passages have {len(titles)}: {sorted(titles)[:3]}")
    (title,) = titles
    if title in known:
        raise DataError(f"{title!r}: there is a document of this title already; remove it first")
    return title


def _known(title: str, documents: Any) -> None:
    if title not in documents:
        raise DataError(f"{title!r}: no document of this title")
