"""An encoder whose vectors are sums of words, and brute force over it: what every dense search is compared with."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest

from kgqa.calls import Rank
from kgqa.protocols import Query
from kgqa.retrieval.biencoder import Kind, get_biencoder, relevance
from kgqa.retrieval.dense import Dense, DenseFinder
from kgqa.types import Passage
from kgqa.util.settings import NotIdentity

SYLLABLES = ["ka", "lo", "mi", "nu", "re", "sa", "to", "vi"]
WORDS = [f"{first}{second}" for first in SYLLABLES for second in SYLLABLES]
SAME_VECTORS = NotIdentity("changes no vector")
EXACT = ("numpy", "torch", "flat")


@dataclass(frozen=True)
class Words:
    """A text's vector is the sum of its words', which are fixed by their letters. Counts what it encoded.

    own: encoders that are equal share the vectors in memory; one with a name of its own does not.
    """

    dimension: int = 12
    scale: float = 1.0
    own: Annotated[str, SAME_VECTORS] = ""
    encoded: Annotated[list[str], SAME_VECTORS] = field(default_factory=list, compare=False)
    fails_at: Annotated[int | None, SAME_VECTORS] = field(default=None, compare=False)

    def score(self, calls: Sequence[Rank]) -> Sequence[tuple[float, ...]]:
        return get_biencoder(self).score(calls)

    def encode(self, kind: Kind, texts: Sequence[str]) -> Any:
        if kind == "passage":
            if self.fails_at is not None and len(self.encoded) >= self.fails_at:
                raise KeyboardInterrupt
            self.encoded.extend(texts)
        rows = [
            sum((self._word(word) for word in text.split()), np.zeros(self.dimension))
            for text in texts
        ]
        return np.stack(rows).astype(np.float32) * np.float32(self.scale)

    def _word(self, word: str) -> Any:
        seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big")
        return np.random.default_rng(seed).standard_normal(self.dimension)


def passages(count: int) -> list[Passage]:
    generator = np.random.default_rng(3)
    return [Passage.of(f"title{at}", " ".join(generator.choice(WORDS, 8))) for at in range(count)]


def dense(encoder: Any, **changes: Any) -> Dense:
    settings = {
        "separator": " ", "backend": "numpy", "device": "cpu", "storage": "float32", "lists": 4, "probes": 4,
        "links": 16, "build_breadth": 64, "breadth": 64,
    }  # fmt: skip
    return Dense(encoder, **{**settings, **changes})


def opened(retriever: Dense, corpus: Sequence[Passage], folder: Path) -> DenseFinder:
    folder.mkdir(parents=True, exist_ok=True)
    retriever.build(corpus, folder, lambda _: None)
    return retriever.open(corpus, folder)


def brute_force(encoder: Words, corpus: Sequence[Passage], query: Query) -> list[tuple[int, float]]:
    (wanted,) = encoder.encode("query", [query.text])
    rows = encoder.encode(
        "passage", [f"{passage.title} {passage.text}" for passage in corpus]
    ).astype(np.float32)
    scores = relevance(wanted, rows)
    places = sorted(query.among or range(len(corpus)), key=lambda place: (-scores[place], place))
    return [(place, float(scores[place])) for place in places[: query.k]]


def skip_without(backend: str) -> None:
    needed = {"numpy": "numpy", "torch": "torch"}.get(backend, "faiss")
    pytest.importorskip(needed, reason=f"backend {backend} needs {needed}")


CORPUS = passages(150)
QUERIES = [
    Query("kalo mire title7", 10),
    Query("vivi", 1),
    Query("sato nunu", 150),
    Query("toto kamire", 400),
]
