"""Words and letters instead of vectors: the rankers TF-IDF and Levenshtein, and retrievers with the same scores."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np

from kgqa.calls import Rank
from kgqa.errors import ConfigError
from kgqa.protocols import Progress, Query, Rankings
from kgqa.retrieval import sparse
from kgqa.retrieval.search import (
    IndexedRetriever,
    OpenedIndex,
    Scores,
    fill_positions,
    rank_found,
    rank_positions,
)
from kgqa.types import JsonObject, Passage
from kgqa.util.fs import explain_storage_errors
from kgqa.util.optional_deps import require_packages
from kgqa.util.settings import Setting

# a word's line is its column in the matrix of passages
WORDS, WEIGHTS = "words.txt", "weights.npz"


def words(text: str) -> list[str]:
    """Return runs of letters and digits, lower-cased, in order."""
    return re.findall(r"[^\W_]+", text.lower())


def terms(text: str) -> list[str]:
    """Return words of two characters or more, lower-cased, in order, as scikit-learn's TF-IDF (KGP's released code)."""
    return re.findall(r"\b\w\w+\b", text.lower())


@dataclass(frozen=True)
class Lexical:
    """TF-IDF cosine of the query and each text, between 0 and 1: a ranker without weights, for ablations and tests.

    Words are those of `terms`. A word's weight in a text is its count times ln((1 + n) / (1 + df)) + 1 over the n texts
    of the call. A query or a text without words scores 0.
    """

    # raise it when equal settings give other results
    version: ClassVar[int] = 2

    def score(self, calls: Sequence[Rank]) -> Sequence[tuple[float, ...]]:
        return [_cosines(call) for call in calls]


def _cosines(call: Rank) -> tuple[float, ...]:
    weigh, texts = _weigh_texts(call.texts)
    query = weigh(Counter(terms(call.query)))
    square = _sum_squares(query)
    return tuple(round(_cosine(query, square, *text), 6) for text in texts)


# every passage of a run is a query for the same few-shot examples
@lru_cache(maxsize=4)
def _weigh_texts(
    texts: tuple[str, ...],
) -> tuple[Callable[[Mapping[str, int]], dict[str, float]], list[tuple[dict[str, float], float]]]:
    """Return the function that weighs counted words, and the weights of each text with the sum of their squares."""
    counts = [Counter(terms(text)) for text in texts]
    documents = Counter(word for count in counts for word in count)

    def weigh(counted: Mapping[str, int]) -> dict[str, float]:
        return {
            word: n * (math.log((1 + len(counts)) / (1 + documents[word])) + 1)
            for word, n in counted.items()
        }

    weights = map(weigh, counts)
    return weigh, [(each, _sum_squares(each)) for each in weights]


def _cosine(
    query: Mapping[str, float], query_square: float, text: Mapping[str, float], text_square: float
) -> float:
    """Return the cosine. It uses `fsum`, so that the order of the words in a text does not change its score."""
    product = math.fsum(weight * text.get(word, 0.0) for word, weight in query.items())
    length = math.sqrt(query_square * text_square)
    return product / length if length else 0.0


def _sum_squares(weights: Mapping[str, float]) -> float:
    return math.fsum(weight * weight for weight in weights.values())


@dataclass(frozen=True)
class Tfidf(IndexedRetriever):
    """Cosine of the query and each passage, its `fields` as one, with the words and weights of `Lexical`.

    Frequencies are the corpus' own. A passage without a text is its title, whatever the fields. The lexical baseline
    of KGP (Wang et al., AAAI 2024).

    Args:
        fill: find `k` passages always, also those without a word of the query.
        ties: which passage of equal scores comes first.
    """

    fields: Annotated[
        tuple[Literal["title", "text"], ...],
        Setting("Fields that are searched.", ours="as the other lexical retrievers"),
    ] = ("title", "text")
    fill: Annotated[
        bool,
        Setting(
            "Find k passages always, also those without a word of the query.", ours="our choice"
        ),
    ] = False
    ties: Annotated[
        Literal["first", "last"],
        Setting("Which passage of equal scores comes first: first | last.", ours="our choice"),
    ] = "first"

    # raise it when equal settings give other results
    version: ClassVar[int] = 3

    def __post_init__(self) -> None:
        if not self.fields:
            raise ConfigError("retriever.fields=[]: name title, text or both")

    def build(self, passages: Sequence[Passage], folder: Path, advance: Progress) -> None:
        """Count in memory, about 1 kB per passage, weigh and write."""

        def texts() -> Iterator[list[str]]:
            for passage in passages:
                yield terms(self._text(passage))
                advance(1)

        numbers, weights = sparse.count_items(texts())
        sparse.weigh_items(weights, sparse.idf(len(passages), sparse.count_holders(weights)) + 1)
        with explain_storage_errors(folder):
            sparse.save_words(folder / WORDS, numbers)
            sparse.save_matrix(folder / WEIGHTS, weights.astype(np.float32).tocsc())

    def load(self, folder: Path) -> tuple[dict[str, int], sparse.Matrix]:
        return sparse.load_words(folder / WORDS), sparse.load_matrix(folder / WEIGHTS)

    def rank(self, index: OpenedIndex, queries: Sequence[Query]) -> Rankings:
        """Return the best positions. Scores are not divided by the length of the query, which does not change ranks."""
        numbers, weights = index.data
        idf = sparse.idf(weights.shape[0], np.diff(weights.indptr)) + 1
        rankings = []
        for query in queries:
            counts = Counter(numbers[word] for word in terms(query.text) if word in numbers)
            # one order of summing, whatever the query's order
            columns = sorted(counts)
            scores = weights[:, columns] @ (
                np.array([counts[word] for word in columns]) * idf[columns]
            )
            positions = rank_found(scores, query, self.ties)
            rankings.append(
                fill_positions(positions, query, len(scores)) if self.fill else positions
            )
        return rankings

    def _text(self, passage: Passage) -> str:
        if self.fields == ("text",):
            return passage.wording
        return " ".join(getattr(passage, field) for field in self.fields)


@dataclass(frozen=True)
class Levenshtein:
    """1 − distance / length of the longer of query and text, ignoring case; between 0 and 1."""

    # raise it when equal settings give other results
    version: ClassVar[int] = 1

    def loads(self) -> JsonObject:
        return require_packages("fuzzy", "rapidfuzz")

    def score(self, calls: Sequence[Rank]) -> Sequence[tuple[float, ...]]:
        compared = (compare(call.query, call.texts, "normalized_similarity") for call in calls)
        return [tuple(round(float(score), 6) for score in scores) for scores in compared]


@dataclass(frozen=True)
class Fuzzy(IndexedRetriever):
    """Passages by Levenshtein's distance to the query: the fuzzy half of KGP's KNN baseline.

    It compares the query with every passage, so it suits hundreds or thousands of passages. It writes no files.

    Args:
        measure: `distance`, the smallest first, which prefers short passages; `similarity`: that of `Levenshtein`.
    """

    measure: Annotated[
        Literal["distance", "similarity"],
        Setting(
            "Distance, which prefers short passages | similarity, the distance divided by the length of the longer "
            "text, from 1.",
            other="KGP footnote 8, and its released code",
        ),
    ] = "distance"

    # raise it when equal settings give other results
    version: ClassVar[int] = 2

    def build(self, passages: Sequence[Passage], folder: Path, advance: Progress) -> None:  # noqa: ARG002
        require_packages("fuzzy", "rapidfuzz")
        advance(len(passages))

    def rank(self, index: OpenedIndex, queries: Sequence[Query]) -> Rankings:
        rankings = []
        for query in queries:
            among = np.array(
                range(len(index.passages)) if query.among is None else query.among, dtype=np.int64
            )
            texts = [index.passages[position].text for position in among]
            if self.measure == "distance":
                scores = -compare(query.text, texts, "distance")
            else:
                scores = compare(query.text, texts, "normalized_similarity")
            rankings.append(rank_positions(scores, query.k, among))
        return rankings


def compare(query: str, texts: Sequence[str], measure: str) -> Scores:
    """Return Levenshtein's distance or similarity of the query and each text, ignoring case."""
    from rapidfuzz import distance, process

    scorer = getattr(distance.Levenshtein, measure)
    lowered = [text.lower() for text in texts]
    scores: Scores = process.cdist([query.lower()], lowered, scorer=scorer, dtype=np.float64)[0]
    return scores
