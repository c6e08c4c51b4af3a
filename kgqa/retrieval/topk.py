"""The best of scored places, the same way for every retriever that scores passages itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def best_places(scores: NDArray[np.floating[Any]], k: int, places: NDArray[np.integer[Any]] | None = None) -> list[int]:
    """Return the places of the `k` highest scores, best first, equal scores by place.

    places: the place of each score, ascending; None: scores[i] is place i's.
    """
    import numpy as np

    candidates = np.arange(len(scores))
    if 0 < k < len(scores):
        least = np.partition(scores, len(scores) - k)[len(scores) - k]
        candidates = np.flatnonzero(scores >= least)  # ties at the end included
    order = candidates[np.lexsort((candidates, -scores[candidates]))][:k]
    return [int(place) for place in (order if places is None else places[order])]
