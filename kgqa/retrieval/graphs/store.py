"""Passage graphs on disk: one small file for each collection, named after its passages, shared between runs.

<root>/<graph>/<hash of the graph's settings>/<hash of the passages' ids>.npz
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from kgqa.calls import Neighbours
from kgqa.errors import DataError
from kgqa.retrieval.graphs.links import Links, PassageGraph
from kgqa.types import Passage
from kgqa.util.fs import digest, ids_digest, replace_atomically

KEPT = 256  # opened graphs, above the questions a run has at once


@dataclass(frozen=True, eq=False)
class Built:
    """A collection's graph, its passages each once in their first order."""

    passages: tuple[Passage, ...]
    links: Links
    edges: int
    seconds: float  # that building took

    @cached_property
    def places(self) -> dict[str, int]:
        return {passage.id: place for place, passage in enumerate(self.passages)}

    @property
    def density(self) -> float:
        """Return edges of all that n passages could have, n (n − 1) / 2; 0 for one passage."""
        count = len(self.passages)
        return 2 * self.edges / (count * (count - 1)) if count > 1 else 0.0

    def neighbours(self, passage: Passage) -> tuple[Passage, ...]:
        if passage.id not in self.places:
            raise DataError(f"passage {passage.id} ({passage.title!r}) is not in the collection whose graph is asked")
        return tuple(self.passages[place] for place in self.links.neighbours(self.places[passage.id]))


class GraphStore:
    """Answers `Neighbours`. A graph that is missing is built when it is asked for; `build` does so ahead."""

    def __init__(self, root: Path, name: str, graph: PassageGraph, corpus: Callable[[], tuple[Passage, ...]]) -> None:
        self._graph, self._corpus = graph, corpus
        self.folder = root / name / digest(dict(graph.identity()), 12, ensure_ascii=False)
        self._opened: OrderedDict[str, Built] = OrderedDict()
        self._keys: OrderedDict[int, tuple[tuple[Passage, ...], str]] = OrderedDict()

    def has(self, pool: tuple[Passage, ...]) -> bool:
        return self._file(pool).is_file()

    def build(self, pool: tuple[Passage, ...]) -> Built:
        """Link the passages and keep the graph; one that is there is linked anew."""
        import numpy as np

        distinct = tuple({passage.id: passage for passage in pool}.values())
        started = time.perf_counter()
        links = self._graph.links(distinct)
        seconds = time.perf_counter() - started
        built = Built(distinct, links, links.edges(), seconds)
        with replace_atomically(self._file(pool)) as fresh, fresh.open("wb") as target:
            np.savez(
                target,
                indptr=links.holds.indptr,
                indices=links.holds.indices,
                shape=np.array(links.holds.shape),
                edges=np.array(built.edges),
                seconds=np.array(seconds),
            )
        return built

    def open(self, pool: tuple[Passage, ...]) -> Built:
        """Return the collection's graph, from memory, from the disk, or built now."""
        key = self._key(pool)
        if key not in self._opened:
            self._opened[key] = self._read(pool) if self.has(pool) else self.build(pool)
        self._opened.move_to_end(key)
        while len(self._opened) > KEPT:
            self._opened.popitem(last=False)
        return self._opened[key]

    def neighbours(self, call: Neighbours) -> tuple[Passage, ...]:
        return self.open(self._corpus() if call.pool is None else call.pool).neighbours(call.passage)

    def _read(self, pool: tuple[Passage, ...]) -> Built:
        import numpy as np
        from scipy.sparse import csr_array

        file = self._file(pool)
        distinct = tuple({passage.id: passage for passage in pool}.values())
        try:
            with file.open("rb") as source, np.load(source) as kept:
                indptr, indices = kept["indptr"], kept["indices"]
                shape = tuple(int(side) for side in kept["shape"])
                edges, seconds = int(kept["edges"]), float(kept["seconds"])
            holds = csr_array((np.ones(len(indices), np.int32), indices, indptr), shape=shape)
        except (OSError, EOFError, ValueError, KeyError, BadZipFile) as error:
            raise DataError(f"{file}: damaged graph ({error}); delete the file, the next run builds it anew") from error
        if shape[0] != len(distinct):
            raise DataError(f"{file}: {shape[0]} passages for {len(distinct)}; delete the file, the next run builds it")
        return Built(distinct, Links(holds), edges, seconds)

    def _file(self, pool: tuple[Passage, ...]) -> Path:
        return self.folder / f"{self._key(pool)}.npz"

    def _key(self, pool: tuple[Passage, ...]) -> str:
        """Return remembered for pools in use: the same tuple comes again and again."""
        known = self._keys.get(id(pool))
        if known is None or known[0] is not pool:
            known = self._keys[id(pool)] = (pool, ids_digest(passage.id for passage in pool))
            while len(self._keys) > KEPT:
                self._keys.popitem(last=False)
        return known[1]


def mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def averages(graphs: Sequence[Built]) -> dict[str, Any]:
    """Return what the paper's Table 3 says of its collections, over these; None where there is none."""
    lengths = [len(passage.text.split()) for built in graphs for passage in built.passages]
    return {
        "collections": len(graphs),
        "documents": mean([len({passage.title for passage in built.passages}) for built in graphs]),
        "passages": mean([len(built.passages) for built in graphs]),
        "edges": mean([built.edges for built in graphs]),
        "passage_words": mean(lengths),
        "density": mean([built.density for built in graphs]),
        "without_edges": sum(not built.edges for built in graphs),
        "build_seconds": mean([built.seconds for built in graphs]),
    }
