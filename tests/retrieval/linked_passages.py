"""Passages of few words, and every passage graph over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kgqa.calls import Rank
from kgqa.retrieval.graphs.entities import Entities
from kgqa.retrieval.graphs.keywords import Keywords
from kgqa.retrieval.graphs.links import Links
from kgqa.retrieval.graphs.nearest import Nearest
from kgqa.retrieval.graphs.none import NoGraph
from kgqa.types import Json, Passage

WORDS = ("harbour", "lantern", "orchard", "viaduct", "Quillmere", "Ostervik", "Wexcombe", "the", "of", "1902")


class Hashed:
    """Vectors from the counts of a few words: an encoder without weights."""

    def identity(self) -> Mapping[str, Json]:
        return {"ranker": "hashed"}

    def fingerprint(self, kind: str) -> Mapping[str, Json]:
        return {"kind": kind}

    def score(self, calls: Sequence[Rank]) -> Sequence[tuple[float, ...]]:
        raise NotImplementedError

    def encode(self, kind: str, texts: Sequence[str]) -> Any:
        return np.array([[1.0 + text.split().count(word) for word in WORDS] for text in texts], np.float32)


GRAPHS = [Keywords(2, 3), Entities(1.0, titles=False), Entities(0.4, titles=False), Nearest(Hashed(), 2), NoGraph()]


def neighbours(links: Links) -> list[list[int]]:
    return [links.neighbours(place).tolist() for place in range(links.holds.shape[0])]


def passages(*texts: str, title: str = "T") -> list[Passage]:
    return [Passage.of(f"{title} {number}", text) for number, text in enumerate(texts)]
