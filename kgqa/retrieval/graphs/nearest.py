"""Passages whose embeddings are near each other (KGP §3, KNN-ST and KNN-MDR)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kgqa.errors import ConfigError
from kgqa.protocols import Ranker
from kgqa.retrieval.biencoder import Encoder, relevance, remembering
from kgqa.retrieval.graphs.links import Links, of_pairs
from kgqa.types import Json, Passage
from kgqa.util.validators import Count

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ROWS = 256  # compared with all others at once: bounds memory, 50 MB at 50,000 passages
SPARE = 16  # more candidates than neighbours, for single precision orders nearly equal ones by chance


@dataclass(frozen=True)
class Nearest:
    """Each passage is linked to the `k` passages of the largest inner product with it; the graph has no direction.

    So a passage has k neighbours or more. Equal scores by the passages' order. Passages without title and text are
    linked to nothing.
    """

    encoder: Ranker
    k: Count

    def __post_init__(self) -> None:
        if not isinstance(self.encoder, Encoder):
            raise ConfigError(
                f"graph.encoder: {type(self.encoder).__name__} gives scores but no vectors; choose another preset"
            )

    def identity(self) -> Mapping[str, Json]:
        return {"graph": "nearest", "version": 1, "k": self.k, "encoder": dict(self.encoder.identity())}

    def links(self, passages: Sequence[Passage]) -> Links:
        import numpy as np

        places = np.array([place for place, passage in enumerate(passages) if passage.wording.strip()], np.int64)
        if len(places) < 2:
            return of_pairs(np.zeros(0, np.int64), np.zeros(0, np.int64), len(passages))
        return join_vectors(nearest(self.vectors([passages[place] for place in places]), self.k), places, len(passages))

    def vectors(self, passages: Sequence[Passage]) -> NDArray[np.float32]:
        assert isinstance(self.encoder, Encoder)
        return remembering(self.encoder).vectors("passage", [passage.wording for passage in passages])


def nearest(vectors: NDArray[np.float32], k: int) -> list[NDArray[np.int64]]:
    """Return the nearest of each row, (n, d), the places of its `k` nearest others, best first; all others where
    there are no more.

    Single precision proposes k + 16, which are then scored as rankers do: exact but where more than 16 are equal.
    """
    import numpy as np

    neighbours = []
    for start in range(0, len(vectors), ROWS):
        scores = vectors[start : start + ROWS] @ vectors.T  # (ROWS, d) @ (d, n)
        scores[np.arange(len(scores)), np.arange(start, start + len(scores))] = -np.inf
        count = min(k + SPARE, scores.shape[1] - 1)
        proposed = np.argpartition(scores, -count, axis=1)[:, -count:] if count else np.zeros((len(scores), 0), int)
        for row, candidates in enumerate(np.sort(proposed, axis=1)):
            exact = relevance(vectors[start + row], vectors[candidates])
            neighbours.append(candidates[np.argsort(-exact, kind="stable")][:k])
    return neighbours


def join_vectors(best: Sequence[NDArray[np.int64]], places: NDArray[np.int64], passages: int) -> Links:
    """Return the links of the graph: each nearest pair is linked in both directions. `best` counts in `places`."""
    import numpy as np

    one = np.repeat(np.arange(len(best)), [len(others) for others in best])
    other = np.concatenate(best) if best else np.zeros(0, np.int64)
    edges = np.unique(np.stack([np.minimum(one, other), np.maximum(one, other)]), axis=1)  # (2, edges)
    number = np.arange(edges.shape[1])
    return of_pairs(places[np.concatenate([edges[0], edges[1]])], np.concatenate([number, number]), passages)
