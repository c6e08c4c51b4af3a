"""Words instead of vectors: a ranker without weights, for ablations and tests."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from kgqa.calls import Rank
from kgqa.types import Json


@dataclass(frozen=True)
class Lexical:
    """TF-IDF cosine of the query and each text, between 0 and 1.

    Words are runs of letters and digits, lower-cased. A word's weight in a text is its count times
    ln((1 + n) / (1 + df)) + 1 over the call's own n texts; the query is not counted among them. A query or a text
    without words scores 0.
    """

    def identity(self) -> Mapping[str, Json]:
        return {"ranker": "lexical", "version": 1}

    def score(self, calls: Sequence[Rank]) -> Sequence[tuple[float, ...]]:
        return [_scores(call) for call in calls]


def _scores(call: Rank) -> tuple[float, ...]:
    counts = [_counts(text) for text in call.texts]
    documents = Counter(word for count in counts for word in count)
    query = _weights(Counter(words(call.query)), documents, len(counts))
    return tuple(round(_cosine(query, _weights(count, documents, len(counts))), 6) for count in counts)


@lru_cache(maxsize=16_384)  # a method ranks the same texts, triples of a question, for each chain it extends
def _counts(text: str) -> Mapping[str, int]:
    return Counter(words(text))


def words(text: str) -> list[str]:
    """Return runs of letters and digits, lower-cased, in order."""
    return re.findall(r"[^\W_]+", text.lower())


def _weights(counts: Mapping[str, int], documents: Mapping[str, int], texts: int) -> dict[str, float]:
    return {word: n * (math.log((1 + texts) / (1 + documents[word])) + 1) for word, n in counts.items()}


def _cosine(left: Mapping[str, float], right: Mapping[str, float]) -> float:
    """Return `fsum`, so that the order of the words in a text does not change its score."""
    product = math.fsum(weight * right.get(word, 0.0) for word, weight in left.items())
    length = math.sqrt(math.fsum(w * w for w in left.values()) * math.fsum(w * w for w in right.values()))
    return product / length if length else 0.0
