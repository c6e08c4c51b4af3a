"""Two-sided encoders: relevance is the inner product of the embeddings of query and text (TRACE eq. 4)."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from kgqa.calls import Rank
from kgqa.retrieval.vector_store import Vectors
from kgqa.util.loaders import load_once

Kind = Literal["query", "passage"]
Key = tuple[Kind, str]
# of vectors: 350,000 of 384 dimensions, 33,000 of 4,096
BYTES_IN_MEMORY = 1 << 29
# of a cosine; encoders that batch differ in the 7th with the shape of the batch
DECIMALS = 6


@runtime_checkable
class Encoder(Protocol):
    """A ranker that gives its vectors, for an index to save. Hashable: equal settings share one loaded model."""

    def __hash__(self) -> int:
        return object.__hash__(self)  # frozen dataclasses have their own

    def encode(self, kind: Kind, texts: Sequence[str]) -> Vectors:
        """Return vectors of shape (len(texts), d), in order; relevance is their inner product."""
        ...

    def score(self, calls: Sequence[Rank]) -> Sequence[tuple[float, ...]]:
        """Score texts as a ranker."""
        return get_biencoder(self).score(calls)


class BiEncoder:
    """Scores calls with an encoder and keeps vectors in memory; the least recently used are dropped first.

    `encode(kind, texts)` returns vectors of shape (len(texts), d). It is called with distinct texts, shorter ones
    first, so that what is encoded together depends on the texts only and padding is small. One call of `score` or
    `vectors` runs at a time.
    """

    def __init__(self, encode: Callable[[Kind, Sequence[str]], Vectors]) -> None:
        self._encode = encode
        self._memory: OrderedDict[Key, Vectors] = OrderedDict()
        self._lock = threading.Lock()

    def score(self, calls: Sequence[Rank]) -> Sequence[tuple[float, ...]]:
        """Return a score for each text of each call; empty for a call without texts."""
        with self._lock:
            keys: dict[Key, None] = dict.fromkeys(
                ("query", call.query) for call in calls if call.texts
            )
            keys |= dict.fromkeys(("passage", text) for call in calls for text in call.texts)
            vectors = self._load(keys)
        scores = []
        for call in calls:
            rows = [vectors["passage", text] for text in call.texts]
            values = relevance(vectors["query", call.query], np.stack(rows)) if rows else ()
            scores.append(tuple(float(score) for score in values))
        return scores

    def vectors(self, kind: Kind, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the texts, in order, shape (len(texts), d); at least one text."""
        with self._lock:
            by_text = self._load(dict.fromkeys((kind, text) for text in texts))
        return np.stack([by_text[kind, text] for text in texts])

    def has_passage(self, text: str) -> bool:
        """Return whether the vector of a passage is in memory, so that this process has computed it."""
        return ("passage", text) in self._memory

    def _load(self, keys: Iterable[Key]) -> dict[Key, Vectors]:
        """Return the vectors of all keys: from memory, or encoded now."""
        wanted = list(keys)
        for kind in ("query", "passage"):
            missing = [text for of, text in wanted if of == kind and (of, text) not in self._memory]
            if texts := sorted(missing, key=lambda text: (len(text), text)):
                rows = self._encode(kind, texts)  # (len(texts), d)
                self._memory.update(
                    ((kind, text), row.copy()) for text, row in zip(texts, rows, strict=True)
                )
        for key in wanted:
            self._memory.move_to_end(key)
        loaded = {key: self._memory[key] for key in wanted}
        while loaded and len(self._memory) > BYTES_IN_MEMORY // loaded[wanted[0]].nbytes:
            self._memory.popitem(last=False)
        return loaded


@load_once
def get_biencoder(encoder: Encoder) -> BiEncoder:
    """Return the one `BiEncoder` of these settings: rankers, queries and small corpora share its vectors."""
    return BiEncoder(encoder.encode)


def can_change(encoder: object) -> bool:
    """Return whether other weights can answer under the encoder's identity, as those of a server."""
    return bool(getattr(encoder, "can_change", False))


def relevance(query: Vectors, rows: NDArray[Any]) -> NDArray[np.float64]:
    """Return inner products of a query, shape (d,), and texts, shape (n, d), in double precision, shape (n,).

    Rounded to six decimals if the vectors have length 1, and to fewer the longer they are, so that what an encoder's
    batches change does not show. Summed pair by pair: a matrix product's last digits vary with its shape.
    """
    wide, texts = query.astype(np.float64), rows.astype(np.float64)
    scores: NDArray[np.float64] = (wide * texts).sum(axis=1)
    lengths = np.sqrt((wide * wide).sum() * (texts * texts).sum(axis=1))
    decimals = DECIMALS - np.maximum(0, np.rint(np.log10(np.maximum(lengths, 1.0))))
    unit = 10.0**decimals
    rounded: NDArray[np.float64] = np.rint(scores * unit) / unit + 0.0
    return rounded


def clean(text: str) -> str:
    """Replace what encoders cannot take: NUL, which ends a text in C, and half surrogates, which UTF-8 cannot write."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode()
