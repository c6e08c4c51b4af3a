"""BM25 with any k1, b and variant, for sweeps over them: bm25s (Lù, 2024), matrices of scores made in advance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from kgqa.errors import ConfigError
from kgqa.protocols import Query
from kgqa.retrieval import analysis
from kgqa.retrieval.bm25 import Boosts
from kgqa.retrieval.topk import best_places
from kgqa.types import Json, Passage
from kgqa.util.fs import explain_storage_errors
from kgqa.util.validators import NotNegative, Share

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

STEP = 1_000  # passages between two signs of progress


@dataclass(frozen=True)
class Bm25s:
    """Scores, fields and words as in `bm25.Bm25`, but for Lucene's rounding of lengths, which bm25s does not do.

    A passage that scores no better than one without any word of the query is not found. Every setting has an index
    of its own. delta: of bm25l and bm25+, without effect on the other variants.
    """

    fields: Boosts
    variant: Literal["lucene", "robertson", "atire", "bm25l", "bm25+"]
    k1: NotNegative
    b: Share
    delta: NotNegative

    pools: ClassVar[bool] = True

    def identity(self) -> Mapping[str, Json]:
        try:
            library = version("bm25s")
        except PackageNotFoundError:
            raise ConfigError("retriever=bm25s needs the package bm25s; run: pip install 'kgqa[bm25s]'") from None
        return {"retriever": "bm25s", **asdict(self), "analysis": analysis.VERSION, "bm25s": library}

    def build(self, passages: Sequence[Passage], folder: Path, advance: Callable[[int], None]) -> None:
        """In memory, about 2 kB a passage. An interrupted build starts afresh."""
        import bm25s

        numbers: dict[str, dict[str, int]] = {field: {} for field in self.fields}  # of terms
        rows: dict[str, list[list[int]]] = {field: [] for field in self.fields}
        for place, passage in enumerate(passages):
            for field, known in numbers.items():
                terms = analysis.terms(getattr(passage, field))
                rows[field].append([known.setdefault(term, len(known)) for term in terms])
            if (place + 1) % STEP == 0:
                advance(STEP)
        for field, known in numbers.items():
            if known:  # a field may be empty in all passages
                scored = bm25s.BM25(k1=self.k1, b=self.b, delta=self.delta, method=self.variant, backend="numpy")
                scored.index((rows[field], known), show_progress=False)
                with explain_storage_errors(folder):
                    scored.save(folder / field, show_progress=False)
        advance(len(passages) % STEP)

    def open(self, passages: Sequence[Passage], folder: Path) -> Bm25sFinder:
        return Bm25sFinder(self.fields, folder, len(passages))


class Bm25sFinder:
    """Adds up the columns of a query's terms, memory-mapped."""

    def __init__(self, fields: Mapping[str, float], folder: Path, count: int) -> None:
        self._fields, self._folder, self._count = fields, folder, count

    def find(self, queries: Sequence[Query]) -> Sequence[Sequence[int]]:
        """Return see `Finder`; equal scores are in order of place."""
        return [self._find(query) for query in queries]

    def close(self) -> None:
        """Nothing is held open."""

    @cached_property
    def _index_parts(self) -> dict[str, Any]:
        import bm25s

        there = [field for field in self._fields if (self._folder / field).is_dir()]
        return {field: bm25s.BM25.load(self._folder / field, mmap=True) for field in there}

    def _find(self, query: Query) -> list[int]:
        import numpy as np

        scores = self._scores(analysis.terms(query.text))
        places = np.flatnonzero(scores > 0)
        if query.among is not None:
            places = np.intersect1d(places, np.array(query.among, dtype=np.int64))
        return best_places(scores[places], query.k, places) if query.k > 0 and len(places) else []

    def _scores(self, terms: Sequence[str]) -> NDArray[np.float64]:
        """Return the scores of every passage, above what one without any of the terms would get."""
        import numpy as np

        scores = np.zeros(self._count)
        for field, opened in self._index_parts.items():
            numbers = [number for term in terms if (number := opened.vocab_dict.get(term)) is not None]
            if numbers:
                absent = opened.nonoccurrence_array
                base = 0.0 if absent is None else absent[numbers].sum(dtype="float32")
                scores += self._fields[field] * (opened.get_scores_from_ids(numbers) - base)
        return np.where(scores > 1e-6, scores, 0.0)
