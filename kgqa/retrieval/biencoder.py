"""Two-sided encoders: relevance is the inner product of the embeddings of query and text (TRACE eq. 4)."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from kgqa.calls import Rank
from kgqa.retrieval.embedding_cache import KeptVectors, Kind, Reproducible
from kgqa.types import Json

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Key = tuple[Kind, str]
REMEMBERED_BYTES = 1 << 29  # of vectors: 350,000 of 384 dimensions, 33,000 of 4,096
DECIMALS = 6  # of a cosine; encoders that batch differ in the 7th with the shape of the batch


@runtime_checkable
class Encoder(Protocol):
    """A ranker that gives its vectors, for an index to keep. Hashable: equal settings share one loaded model."""

    def __hash__(self) -> int: ...

    def identity(self) -> Mapping[str, Json]: ...

    def fingerprint(self, kind: Kind) -> Mapping[str, Json]:
        """Return what decides a vector of this kind up to rounding: no device, no batch size, no versions of
        libraries.
        """
        ...

    def encode(self, kind: Kind, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return vectors of shape (len(texts), d), in order; relevance is their inner product."""
        ...

    def score(self, calls: Sequence[Rank]) -> Sequence[tuple[float, ...]]: ...


class BiEncoder:
    """Scores calls with an encoder and remembers the vectors, the least recently used are forgotten first.

    `encode(kind, texts)` gives vectors of shape (len(texts), d). It is called with distinct texts, shorter
    ones first, so that what is encoded together depends on the texts alone and padding is small. One call of
    `score` or `vectors` runs at a time.
    """

    def __init__(
        self, encode: Callable[[Kind, Sequence[str]], NDArray[np.float32]], kept: KeptVectors | None = None
    ) -> None:
        """kept: where vectors of earlier runs are, and those of this one will be."""
        self._encode, self._kept = encode, kept
        self._remembered: OrderedDict[Key, NDArray[np.float32]] = OrderedDict()
        self._lock = threading.Lock()

    def score(self, calls: Sequence[Rank]) -> Sequence[tuple[float, ...]]:
        """Return a score for each text of each call; empty for a call without texts."""
        with self._lock:
            vectors = self._vectors(dict.fromkeys(key for call in calls if call.texts for key in _keys(call)))
            scores = [_scores(call, vectors) for call in calls]
            self._forget()
        return scores

    def vectors(self, kind: Kind, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of the texts, in order, shape (len(texts), d); at least one text."""
        import numpy as np

        with self._lock:
            by_text = self._vectors(dict.fromkeys((kind, text) for text in texts))
            rows = np.stack([by_text[kind, text] for text in texts])
            self._forget()
        return rows

    def _vectors(self, keys: Iterable[Key]) -> dict[Key, NDArray[np.float32]]:
        """Return the vectors of all keys, the missing ones encoded on the way."""
        wanted = list(keys)
        missing = [key for key in wanted if key not in self._remembered]
        for kind in ("query", "passage"):
            texts = sorted((text for of, text in missing if of == kind), key=lambda text: (len(text), text))
            self._remembered.update(((kind, text), row) for text, row in self._load_model(kind, texts).items())
        for key in wanted:
            self._remembered.move_to_end(key)
        return {key: self._remembered[key] for key in wanted}

    def _load_model(self, kind: Kind, texts: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """Read where they are kept, else encoded."""
        found = self._kept.of(kind, texts) if self._kept and texts else {}
        fresh = [text for text in texts if text not in found]
        if fresh:
            rows = self._encode(kind, fresh)  # (len(fresh), d)
            if self._kept:
                self._kept.keep(kind, fresh, rows)
            found.update((text, row.copy()) for text, row in zip(fresh, rows, strict=True))
        return found

    def _forget(self) -> None:
        if not self._remembered:
            return
        most = REMEMBERED_BYTES // next(iter(self._remembered.values())).nbytes
        while len(self._remembered) > most:
            self._remembered.popitem(last=False)


@cache
def remembering(encoder: Encoder) -> BiEncoder:
    """Return the one `BiEncoder` of these settings: rankers, queries and small corpora share its vectors."""
    return BiEncoder(encoder.encode, KeptVectors(encoder) if isinstance(encoder, Reproducible) else None)


def relevance(query: NDArray[np.float32], rows: NDArray[Any]) -> NDArray[np.float64]:
    """Return inner products of a query, shape (d,), and texts, shape (n, d), in double precision, shape (n,).

    Rounded to six decimals where the vectors have length 1, and to fewer the longer they are, so that what an
    encoder's batches change does not show. Summed pair by pair: a matrix product's last digits vary with its shape.
    """
    import numpy as np

    wide, texts = query.astype(np.float64), rows.astype(np.float64)
    scores: NDArray[np.float64] = (wide * texts).sum(axis=1)
    lengths = np.sqrt((wide * wide).sum() * (texts * texts).sum(axis=1))
    decimals = DECIMALS - np.maximum(0, np.rint(np.log10(np.maximum(lengths, 1.0))))
    unit = 10.0**decimals
    rounded: NDArray[np.float64] = np.rint(scores * unit) / unit + 0.0
    return rounded


def clean(text: str) -> str:
    """Return what encoders can take: no NUL, which ends a text in C, and no half surrogates, which UTF-8 cannot
    write.
    """
    return text.replace("\0", " ").encode("utf-8", "replace").decode()


def _keys(call: Rank) -> list[Key]:
    return [("query", call.query), *(("passage", text) for text in call.texts)]


def _scores(call: Rank, vectors: dict[Key, NDArray[np.float32]]) -> tuple[float, ...]:
    if not call.texts:
        return ()
    import numpy as np

    rows = np.stack([vectors["passage", text] for text in call.texts])
    return tuple(float(score) for score in relevance(vectors["query", call.query], rows))
