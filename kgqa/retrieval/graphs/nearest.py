"""Passages whose embeddings are near each other (KGP §3, KNN-ST and KNN-MDR)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from kgqa.errors import ConfigError
from kgqa.protocols import Ranker
from kgqa.retrieval.biencoder import Encoder, get_biencoder, relevance
from kgqa.retrieval.dense import nearest_exactly
from kgqa.retrieval.graphs.links import Links, link_passages
from kgqa.retrieval.vector_store import Vectors
from kgqa.types import Passage
from kgqa.util.settings import Setting
from kgqa.util.validators import Count

# compared with all others at once: bounds memory, 50 MB at 50,000 passages
ROWS = 256
# more candidates than neighbors, because single precision orders nearly equal ones by chance
SPARE = 16


@dataclass(frozen=True)
class Nearest:
    """Each passage is linked to the `k` passages of the largest inner product with it; the graph has no direction.

    So a passage has k neighbors or more. Equal scores by the passages' order. Passages without title and text are
    linked to nothing.
    """

    encoder: Annotated[Ranker, Setting("Encoder of the passages: ranker@graph.encoder=NAME.")]
    k: Annotated[
        Count,
        Setting("Number of neighbors per passage. Varied in Figs. 5 and 9.", code="released code"),
    ] = 10

    # raise it when equal settings give other results
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not isinstance(self.encoder, Encoder):
            raise ConfigError(
                f"graph.encoder: {type(self.encoder).__name__} returns scores, not vectors. Choose another preset"
            )

    def links(self, passages: Sequence[Passage]) -> Links:
        assert isinstance(self.encoder, Encoder)
        edges: list[set[tuple[int, int]]] = [set() for _ in passages]
        positions = [
            position for position, passage in enumerate(passages) if passage.wording.strip()
        ]
        if len(positions) > 1:
            texts = [passages[position].wording for position in positions]
            vectors = get_biencoder(self.encoder).vectors("passage", texts)
            for one, others in zip(positions, find_nearest(vectors, self.k), strict=True):
                for other in (positions[number] for number in others):
                    edge = (min(one, other), max(one, other))
                    edges[one].add(edge)
                    edges[other].add(edge)
        return link_passages(edges)


def find_nearest(vectors: Vectors, k: int) -> list[NDArray[np.int64]]:
    """Return for each row, (n, d), the positions of its `k` nearest others, best first; all others if there are fewer.

    Single precision proposes k + 16, which are then scored as rankers do: exact unless more than 16 are equal.
    """
    neighbours = []
    for start in range(0, len(vectors), ROWS):
        # one can be the row itself
        proposed = nearest_exactly(vectors, vectors[start : start + ROWS], k + 1 + SPARE)
        for row, candidates in enumerate(np.sort(proposed, axis=1), start):
            others = candidates[candidates != row]
            exact = relevance(vectors[row], vectors[others])
            neighbours.append(others[np.argsort(-exact, kind="stable")][:k])
    return neighbours
