"""Scoring with two-sided encoders: inner products of normalised embeddings (TRACE eq. 4; Fang et al., 2024)."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from kgqa.calls import Rank

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Kind = Literal["query", "passage"]
Key = tuple[Kind, str]
REMEMBERED_BYTES = 1 << 29  # of vectors: 350,000 of 384 dimensions, 33,000 of 4,096
DECIMALS = 6  # of a score; encoders that batch differ in the 7th with the shape of the batch


class BiEncoder:
    """Scores calls with an encoder and remembers the vectors, the least recently used are forgotten first.

    `encode(kind, texts)` gives unit vectors of shape (len(texts), d). It is called with distinct texts, shorter
    ones first, so that what is encoded together depends on the texts alone and padding is small. One call of
    `score` runs at a time.
    """

    def __init__(self, encode: Callable[[Kind, Sequence[str]], NDArray[np.float32]]) -> None:
        self._encode = encode
        self._remembered: OrderedDict[Key, NDArray[np.float32]] = OrderedDict()
        self._lock = threading.Lock()

    def score(self, calls: Sequence[Rank]) -> Sequence[tuple[float, ...]]:
        """A score for each text of each call, between -1 and 1; empty for a call without texts."""
        with self._lock:
            vectors = self._vectors(dict.fromkeys(key for call in calls if call.texts for key in _keys(call)))
            scores = [_scores(call, vectors) for call in calls]
            self._forget()
        return scores

    def _vectors(self, keys: Iterable[Key]) -> dict[Key, NDArray[np.float32]]:
        """The vectors of all keys, the missing ones encoded on the way."""
        wanted = list(keys)
        missing = [key for key in wanted if key not in self._remembered]
        for kind in ("query", "passage"):
            texts = sorted((text for of, text in missing if of == kind), key=lambda text: (len(text), text))
            if texts:
                rows = self._encode(kind, texts)  # (len(texts), d)
                self._remembered.update(((kind, text), row.copy()) for text, row in zip(texts, rows, strict=True))
        for key in wanted:
            self._remembered.move_to_end(key)
        return {key: self._remembered[key] for key in wanted}

    def _forget(self) -> None:
        if not self._remembered:
            return
        most = REMEMBERED_BYTES // next(iter(self._remembered.values())).nbytes
        while len(self._remembered) > most:
            self._remembered.popitem(last=False)


def clean(text: str) -> str:
    """What encoders can take: no NUL, which ends a text in C, and no half surrogates, which UTF-8 cannot write."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode()


def _keys(call: Rank) -> list[Key]:
    return [("query", call.query), *(("passage", text) for text in call.texts)]


def _scores(call: Rank, vectors: dict[Key, NDArray[np.float32]]) -> tuple[float, ...]:
    """Summed pair by pair in double precision: a matrix product's last digits would vary with its shape."""
    if not call.texts:
        return ()
    query: Any = vectors["query", call.query].astype("float64")
    return tuple(round(float((query * vectors["passage", text]).sum()), DECIMALS) + 0.0 for text in call.texts)
