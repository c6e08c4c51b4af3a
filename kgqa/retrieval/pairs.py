"""Scoring with rerankers: query and text are read together, so nothing but the score can be kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kgqa.calls import Rank
from kgqa.errors import ConfigError
from kgqa.retrieval.biencoder import clean

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Pair = tuple[str, str]  # query, text
DECIMALS = 4  # of a logit; models that batch differ in the 6th digit with the shape of the batch


def score_pairs(
    calls: Sequence[Rank], score: Callable[[Sequence[Pair]], NDArray[np.float32]]
) -> list[tuple[float, ...]]:
    """Return a score for each text of each call, rounded to four decimals. Equal pairs are scored once, shorter ones
    first,
    so that what is scored together depends on the texts alone.

    Raises:
        ConfigError: a score is not finite.
    """
    import numpy as np

    wanted = {(call.query, text) for call in calls for text in call.texts}
    pairs = sorted(wanted, key=lambda pair: (len(pair[0]) + len(pair[1]), pair))
    if not pairs:
        return [() for _ in calls]
    scores = score([(clean(query), clean(text)) for query, text in pairs])
    if not np.isfinite(scores).all():
        raise ConfigError("the reranker gives scores that are not finite; set reranker.dtype=float32")
    known = {pair: round(float(value), DECIMALS) + 0.0 for pair, value in zip(pairs, scores, strict=True)}
    return [tuple(known[call.query, text] for text in call.texts) for call in calls]
