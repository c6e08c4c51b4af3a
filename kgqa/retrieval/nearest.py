"""Candidates by inner product over a corpus' vectors: exact in numpy or torch, or with an index of FAISS.

A backend proposes; `dense` scores what it proposes anew and orders it, so that the backends agree to the last digit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from kgqa.retrieval.hf_model import torch_device
from kgqa.retrieval.vectors import Vectors
from kgqa.util.optional_deps import require_packages

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

QUERIES = 1_024  # at once: bounds the scores held, (queries, rows of a shard)


class NearestVectors(Protocol):
    def __call__(self, queries: NDArray[np.float32], count: int) -> NDArray[np.int64]:
        """Places of the `count` largest inner products of each query, (Q, d) -> (Q, count), best first; -1: none."""
        ...


class Numpy:
    """Exact, on the CPU, straight from the mapped shards: memory stays small whatever the corpus."""

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors

    def __call__(self, queries: NDArray[np.float32], count: int) -> NDArray[np.int64]:
        import numpy as np

        parts = [self._search(queries[start : start + QUERIES], count) for start in range(0, len(queries), QUERIES)]
        return np.concatenate(parts)

    def _search(self, queries: NDArray[np.float32], count: int) -> NDArray[np.int64]:
        import numpy as np

        scores = np.empty((len(queries), 0), np.float32)
        places = np.empty((len(queries), 0), np.int64)
        for start, rows in self._vectors.blocks():
            here = _products(queries, rows)
            best = _largest(here, count)
            scores = np.concatenate([scores, np.take_along_axis(here, best, axis=1)], axis=1)
            places = np.concatenate([places, best + start], axis=1)
            kept = _largest(scores, count)
            scores, places = np.take_along_axis(scores, kept, axis=1), np.take_along_axis(places, kept, axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")
        return np.take_along_axis(places, order, axis=1)


def _products(queries: NDArray[np.float32], rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return (Q, d) and (rows, d) to (Q, rows)."""
    import numpy as np

    if len(queries) > 1:
        products: NDArray[np.float32] = queries @ rows.T
        return products
    # One query is bound by memory; BLAS would split it and wait for its threads, five times as long on busy cores
    alone: NDArray[np.float32] = np.einsum("nd,d->n", rows, queries[0])
    return alone[None]


def _largest(scores: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """Return columns of the `count` largest scores of each row, in no order; all of them where there are fewer."""
    import numpy as np

    if count >= scores.shape[1]:
        return np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    return np.argpartition(scores, -count, axis=1)[:, -count:]


class Torch:
    """Exact, on a GPU where there is one. All vectors lie in its memory, 4 bytes a number."""

    def __init__(self, vectors: Vectors, device: str) -> None:
        require_packages("transformers", "torch")
        import torch

        self._device = torch_device(device)
        rows = torch.empty((len(vectors), vectors.dimension), device=self._device)
        for start, block in vectors.blocks():
            rows[start : start + len(block)] = torch.tensor(block, device=self._device)
        self._rows: Any = rows

    def __call__(self, queries: NDArray[np.float32], count: int) -> NDArray[np.int64]:
        import numpy as np
        import torch

        parts = []
        for start in range(0, len(queries), QUERIES):
            some = torch.tensor(queries[start : start + QUERIES], device=self._device)
            parts.append(self._search(some, count).cpu().numpy())
        return np.concatenate(parts)

    def _search(self, queries: Any, count: int) -> Any:
        import torch

        scores, places = [], []
        for start in range(0, len(self._rows), QUERIES * 64):
            here = queries @ self._rows[start : start + QUERIES * 64].T  # (Q, rows)
            best = torch.topk(here, min(count, here.shape[1]))
            scores.append(best.values)
            places.append(best.indices + start)
        best = torch.topk(torch.cat(scores, dim=1), count)
        return torch.cat(places, dim=1).gather(1, best.indices)
