"""Words and letters instead of vectors: the rankers TF-IDF and Levenshtein, and retrievers with the same scores."""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from kgqa.calls import Rank
from kgqa.errors import ConfigError
from kgqa.protocols import Finder, Progress, Query, Rankings
from kgqa.retrieval.search import Scores, fill_positions, rank_found, rank_positions
from kgqa.types import JsonObject, Passage
from kgqa.util.fs import explain_storage_errors
from kgqa.util.optional_deps import require_packages

WORDS, WEIGHTS = "words.txt", "weights.npz"  # a word's line is its column in the matrix of passages


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

    def identity(self) -> JsonObject:
        return {"ranker": "lexical", "version": 2}

    def score(self, calls: Sequence[Rank]) -> Sequence[tuple[float, ...]]:
        return [_cosines(call) for call in calls]


def _cosines(call: Rank) -> tuple[float, ...]:
    counts = [Counter(terms(text)) for text in call.texts]
    documents = Counter(word for count in counts for word in count)

    def weigh(counted: Mapping[str, int]) -> dict[str, float]:
        return {word: n * (math.log((1 + len(counts)) / (1 + documents[word])) + 1) for word, n in counted.items()}

    query = weigh(Counter(terms(call.query)))
    return tuple(round(_cosine(query, weigh(count)), 6) for count in counts)


def _cosine(left: Mapping[str, float], right: Mapping[str, float]) -> float:
    """Return the cosine. It uses `fsum`, so that the order of the words in a text does not change its score."""
    product = math.fsum(weight * right.get(word, 0.0) for word, weight in left.items())
    length = math.sqrt(math.fsum(w * w for w in left.values()) * math.fsum(w * w for w in right.values()))
    return product / length if length else 0.0


@dataclass(frozen=True)
class Tfidf:
    """Cosine of the query and each passage, its `fields` as one, with the words and weights of `Lexical`.

    Frequencies are the corpus' own. A passage without a text is its title, whatever the fields. The lexical baseline
    of KGP (Wang et al., AAAI 2024).

    Args:
        fill: find `k` passages always, also those without a word of the query.
        ties: which passage of equal scores comes first.
    """

    fields: tuple[Literal["title", "text"], ...]
    fill: bool
    ties: Literal["first", "last"]

    pools: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.fields:
            raise ConfigError("retriever.fields=[]: name title, text or both")

    def identity(self) -> JsonObject:
        settings = {"fields": sorted(set(self.fields)), "fill": self.fill, "ties": self.ties}
        return {"retriever": "tfidf", "version": 3, **settings}

    def build(self, passages: Sequence[Passage], folder: Path, advance: Progress) -> None:
        """Count in memory, about 1 kB per passage, weigh and write."""
        from scipy.sparse import csr_matrix, save_npz

        numbers: dict[str, int] = {}  # of words, in the order they first occur
        columns, counted, ends = array("i"), array("i"), array("q", [0])
        for passage in passages:
            counts = Counter(terms(self._text(passage)))
            columns.extend(numbers.setdefault(word, len(numbers)) for word in counts)
            counted.extend(counts.values())
            ends.append(len(columns))
            advance(1)
        cells = np.array(counted, np.float64), np.array(columns), np.array(ends)
        weights = csr_matrix(cells, shape=(len(passages), len(numbers))).tocsc()
        weights.data *= np.repeat(_idf(weights), np.diff(weights.indptr))
        lengths = np.sqrt(np.bincount(weights.indices, weights=weights.data**2, minlength=len(passages)))
        weights.data = (weights.data / lengths[weights.indices]).astype(np.float32)
        with explain_storage_errors(folder):
            (folder / WORDS).write_text("".join(f"{word}\n" for word in numbers), encoding="utf-8")
            save_npz(folder / WEIGHTS, weights, compressed=False)

    def open(self, passages: Sequence[Passage], folder: Path) -> Finder:
        return _TfidfFinder(self, len(passages), folder)

    def _text(self, passage: Passage) -> str:
        if self.fields == ("text",):
            return passage.wording
        return " ".join(getattr(passage, field) for field in self.fields)


def _idf(weights: Any) -> Scores:
    """Return the inverse document frequency of each word, from a CSC matrix of passages × words."""
    idf: Scores = np.log((1 + weights.shape[0]) / (1 + np.diff(weights.indptr))) + 1
    return idf


class _TfidfFinder(Finder):
    def __init__(self, retriever: Tfidf, count: int, folder: Path) -> None:
        self._retriever, self._count, self._folder = retriever, count, folder

    @cached_property
    def _index(self) -> tuple[dict[str, int], Any, Scores]:
        """Return the words with their columns, the weights of passages × words, and the words' frequencies."""
        from scipy.sparse import load_npz

        lines = (self._folder / WORDS).read_text(encoding="utf-8").split("\n")
        weights = load_npz(self._folder / WEIGHTS)
        return {word: number for number, word in enumerate(lines[:-1])}, weights, _idf(weights)

    def find(self, queries: Sequence[Query]) -> Rankings:
        """Return the best positions. Scores are not divided by the length of the query, which does not change ranks."""
        numbers, weights, idf = self._index
        rankings = []
        for query in queries:
            counts = Counter(numbers[word] for word in terms(query.text) if word in numbers)
            columns = sorted(counts)  # one order of summing, whatever the query's order
            scores = weights[:, columns] @ (np.array([counts[word] for word in columns]) * idf[columns])
            found = rank_found(scores, query, self._retriever.ties)
            rankings.append(fill_positions(found, query, self._count) if self._retriever.fill else found)
        return rankings


@dataclass(frozen=True)
class Levenshtein:
    """1 − distance / length of the longer of query and text, ignoring case; between 0 and 1."""

    def identity(self) -> JsonObject:
        require_packages("fuzzy", "rapidfuzz")
        return {"ranker": "levenshtein", "version": 1}

    def score(self, calls: Sequence[Rank]) -> Sequence[tuple[float, ...]]:
        compared = (compare(call.query, call.texts, "normalized_similarity") for call in calls)
        return [tuple(round(float(score), 6) for score in scores) for scores in compared]


@dataclass(frozen=True)
class Fuzzy:
    """Passages by Levenshtein's distance to the query: the fuzzy half of KGP's KNN baseline.

    It compares the query with every passage, so it suits hundreds or thousands of passages. It writes no files.

    Args:
        measure: `distance`, the smallest first, which prefers short passages; `similarity`: that of `Levenshtein`.
    """

    measure: Literal["distance", "similarity"]

    pools: ClassVar[bool] = True

    def identity(self) -> JsonObject:
        return {"retriever": "fuzzy", "version": 2, "measure": self.measure}

    def build(self, passages: Sequence[Passage], folder: Path, advance: Progress) -> None:  # noqa: ARG002
        require_packages("fuzzy", "rapidfuzz")
        advance(len(passages))

    def open(self, passages: Sequence[Passage], folder: Path) -> Finder:  # noqa: ARG002 - it holds nothing
        return _FuzzyFinder(passages, self.measure)


class _FuzzyFinder(Finder):
    def __init__(self, passages: Sequence[Passage], measure: Literal["distance", "similarity"]) -> None:
        self._passages, self._measure = passages, measure

    def find(self, queries: Sequence[Query]) -> Rankings:
        found = []
        for query in queries:
            among = np.array(range(len(self._passages)) if query.among is None else query.among, dtype=np.int64)
            texts = [self._passages[position].text for position in among]
            if self._measure == "distance":
                scores = -compare(query.text, texts, "distance")
            else:
                scores = compare(query.text, texts, "normalized_similarity")
            found.append(rank_positions(scores, query.k, among))
        return found


def compare(query: str, texts: Sequence[str], measure: str) -> Scores:
    """Return Levenshtein's distance or similarity of the query and each text, ignoring case."""
    from rapidfuzz import distance, process

    scorer = getattr(distance.Levenshtein, measure)
    lowered = [text.lower() for text in texts]
    scores: Scores = process.cdist([query.lower()], lowered, scorer=scorer, dtype=np.float64)[0]
    return scores
