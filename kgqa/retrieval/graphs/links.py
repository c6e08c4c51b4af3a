"""Passage graphs: what links passages, and the files of the graphs, shared between runs.

A graph is stored as what its passages hold in common. A table of pairs would grow with their square.

<root>/<graph>/<hash of the graph's settings>/<hash of the passages' ids>.npz
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar, Protocol
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from kgqa.calls import Neighbours
from kgqa.errors import DataError
from kgqa.identity.component import identity_of
from kgqa.retrieval import sparse
from kgqa.types import Passage
from kgqa.util.digests import digest, ids_digest
from kgqa.util.fs import replace_atomically

Pool = tuple[Passage, ...]
# passages with neighbors counted at once: bounds memory
BLOCK = 256
# above the questions that a run has at once
OPEN_GRAPHS = 256


class PassageGraph(Protocol):
    """The interface of graphs: how passages are linked."""

    def links(self, passages: Sequence[Passage]) -> Links:
        """Return what links these passages, each of another id. Passages of one title are one document."""
        ...


@dataclass(frozen=True, eq=False)
class Links:
    """Two passages are neighbors if they hold a common link: a keyword, an entity, or an edge of nearest ones.

    holds: CSR matrix of ones, (passages, links).
    """

    holds: Any

    def neighbours(self, position: int) -> NDArray[np.int64]:
        """Return positions of the passages that hold a link of this one, in order, without itself."""
        positions = np.unique((self.holds[[position]] @ self._by_link).indices)
        others: NDArray[np.int64] = positions[positions != position].astype(np.int64)
        return others

    def edges(self) -> int:
        """Return pairs of neighbors, each counted once."""
        blocks = (
            self.holds[first : first + BLOCK] @ self._by_link
            for first in range(0, self.holds.shape[0], BLOCK)
        )
        # passages that share links with themselves
        linked = int(np.count_nonzero(np.diff(self.holds.indptr)))
        return (sum(int(block.nnz) for block in blocks) - linked) // 2

    @cached_property
    def _by_link(self) -> Any:
        return self.holds.T.tocsr()


@dataclass(frozen=True)
class NoGraph:
    """Every passage is the neighbor of every other: the ablation in which nothing regulates where an agent may go."""

    # raise it when equal settings give other results
    version: ClassVar[int] = 1

    def links(self, passages: Sequence[Passage]) -> Links:
        return link_passages([("everything",)] * len(passages))


def link_passages(items: Sequence[Iterable[Hashable]]) -> Links:
    """Return the links from what each passage holds. What only one passage holds is left out."""
    _, holds = sparse.count_items(map(set, items))
    return Links(holds[:, np.flatnonzero(sparse.count_holders(holds) > 1)].astype(np.int32))


@dataclass(frozen=True, eq=False)
class BuiltGraph:
    """A collection's graph, its passages each once in their first order."""

    passages: Pool
    links: Links

    @cached_property
    def edges(self) -> int:
        return self.links.edges()

    @cached_property
    def positions(self) -> dict[str, int]:
        return {passage.id: position for position, passage in enumerate(self.passages)}

    @property
    def density(self) -> float:
        """Return edges of all that n passages could have, n (n − 1) / 2; 0 for one passage."""
        count = len(self.passages)
        return 2 * self.edges / (count * (count - 1)) if count > 1 else 0.0

    def neighbours(self, passage: Passage) -> Pool:
        if passage.id not in self.positions:
            raise DataError(
                f"passage {passage.id} ({passage.title!r}) is not in the collection of this graph"
            )
        return tuple(
            self.passages[position]
            for position in self.links.neighbours(self.positions[passage.id])
        )


class GraphStore:
    """Answers `Neighbours`. A missing graph is built on demand; `build` does so ahead."""

    def __init__(
        self, root: Path, name: str, graph: PassageGraph, corpus: Callable[[], Pool]
    ) -> None:
        self._graph, self._corpus = graph, corpus
        self.folder = root / name / digest(identity_of(graph), 12, ensure_ascii=False)
        self.open = lru_cache(OPEN_GRAPHS)(self._open)

    def has(self, pool: Pool) -> bool:
        return self._file(pool).is_file()

    def build(self, pool: Pool) -> BuiltGraph:
        """Link the passages and save the graph; an existing one is replaced."""
        distinct = _distinct(pool)
        links = self._graph.links(distinct)
        with replace_atomically(self._file(pool)) as fresh, fresh.open("wb") as target:
            sparse.save_matrix(target, links.holds)
        return BuiltGraph(distinct, links)

    def neighbours(self, call: Neighbours) -> Pool:
        return self.open(call.pool).neighbours(call.passage)

    def _open(self, pool: Pool | None) -> BuiltGraph:
        """Return the graph of a pool, or of the corpus, from the disk or built now."""
        pool = self._corpus() if pool is None else pool
        if not self.has(pool):
            return self.build(pool)
        file = self._file(pool)
        try:
            with file.open("rb") as source:
                return BuiltGraph(_distinct(pool), Links(sparse.load_matrix(source)))
        except (OSError, EOFError, ValueError, KeyError, BadZipFile) as error:
            raise DataError(
                f"{file}: damaged graph ({error}). Delete the file and run again"
            ) from error

    def _file(self, pool: Pool) -> Path:
        return self.folder / f"{ids_digest(passage.id for passage in pool)}.npz"


def _distinct(pool: Pool) -> Pool:
    return tuple({passage.id: passage for passage in pool}.values())


def average_figures(graphs: Sequence[BuiltGraph]) -> dict[str, Any]:
    """Return the figures of the paper's Table 3 over these collections; None if there is none."""
    figures: dict[str, Sequence[float]] = {
        "documents": [len({passage.title for passage in graph.passages}) for graph in graphs],
        "passages": [len(graph.passages) for graph in graphs],
        "edges": [graph.edges for graph in graphs],
        "passage_words": [
            len(passage.text.split()) for graph in graphs for passage in graph.passages
        ],
        "density": [graph.density for graph in graphs],
    }
    means = {
        name: sum(values) / len(values) if values else None for name, values in figures.items()
    }
    return {"collections": len(graphs), **means}
