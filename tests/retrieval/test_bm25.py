"""BM25: against Lucene's own rankings, against its formula in numpy, and what an index on disk must cost."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kgqa.config import building as parts
from kgqa.config.composing import compose
from kgqa.protocols import Finder, Query
from kgqa.retrieval.analysis import terms
from kgqa.retrieval.bm25 import Bm25, Bm25s
from kgqa.retrieval.search import OpenedIndex
from kgqa.types import Passage
from tests.retrieval.conftest import built, find

BOTH = {"title": 1.0, "text": 1.0}


def scores_found(finder: Finder, text: str) -> dict[int, float]:
    """Places and scores as tantivy gives them."""
    assert isinstance(finder, OpenedIndex)
    schema, searcher = finder.data
    wanted = finder.retriever.to_tantivy(Query(text, 1), schema)
    if wanted is None:
        return {}
    hits = searcher.search(wanted, 1000, count=False).hits
    places = searcher.fast_field_values("place", [address for _, address in hits])
    return dict(zip(places, (score for score, _ in hits), strict=True))


def test_the_rankings_of_the_demo_are_lucenes(tmp_path: Path) -> None:
    """lucene_demo.jsonl holds what Lucene 8.7 finds for each question in the passages of all, see scripts/lucene."""
    dataset = parts.dataset(compose(["dataset=demo"])["dataset"])
    passages = list(dataset.passages())
    lines = (Path(__file__).parent / "lucene_demo.jsonl").read_text("utf-8").splitlines()
    lucene = {row["question"]: row["found"] for row in map(json.loads, lines)}
    finder = built(Bm25(BOTH, fill=False), passages, tmp_path)
    rankings = {
        question.id: [passages[place].id for place in find(finder, question.text, 10)]
        for question in dataset.questions()
    }
    scores = {
        (question.id, passages[place].id): score
        for question in dataset.questions()
        for place, score in scores_found(finder, question.text).items()
    }
    finder.close()
    assert rankings == {question: [id_ for id_, _ in lucene[question]] for question in rankings}
    expected = {
        (question, id_): 2.2 * score for question in rankings for id_, score in lucene[question]
    }
    assert {pair: scores.get(pair) for pair in expected} == pytest.approx(expected, rel=1e-5)


def rounded_length(length: int) -> int:
    """As it comes back from the byte Lucene keeps (SmallFloat.intToByte4): exact up to 40, then four bits count."""
    if length < 24:
        return length
    over = length - 24
    shift = max(over.bit_length() - 4, 0)
    return 24 + (over >> shift << shift)


def lucene_scores(
    texts: Sequence[str], query: str, *, rounded: bool, k1: float = 1.2, b: float = 0.75
) -> NDArray[np.float64]:
    """Kamphuis et al., ECIR 2020, table 1, "Lucene (accurate)" or, rounded, "Lucene (default)", over one field."""
    counts = [Counter(terms(text)) for text in texts]
    lengths = [sum(count.values()) for count in counts]
    average = sum(lengths) / len(lengths)
    scores = np.zeros(len(texts))
    for term, repeated in Counter(terms(query)).items():
        frequency = sum(term in count for count in counts)
        idf = math.log(1 + (len(texts) - frequency + 0.5) / (frequency + 0.5))
        for place, count in enumerate(counts):
            if term in count:
                length = rounded_length(lengths[place]) if rounded else lengths[place]
                norm = k1 * (1 - b + b * length / average)
                scores[place] += repeated * idf * count[term] / (count[term] + norm)
    return scores


def random_passages(seed: int, count: int) -> list[Passage]:
    """Of words drawn with very different frequencies, between none and 300 of them."""
    generator = random.Random(seed)
    words = [
        f"{generator.choice('bcdfg')}{generator.choice('aeiou')}{number}" for number in range(300)
    ]
    weights = [1 / (rank + 1) for rank in range(300)]

    def text(most: int) -> str:
        return " ".join(generator.choices(words, weights, k=generator.randint(0, most)))

    return [
        Passage.of(f"{text(4)} {number}", text(generator.choice([10, 60, 300])))
        for number in range(count)
    ]


@pytest.fixture(scope="module")
def random_index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[Passage], Any]]:
    passages = random_passages(0, 200)
    finder = built(Bm25(BOTH, fill=False), passages, tmp_path_factory.mktemp("bm25"))
    yield passages, finder
    finder.close()


@pytest.mark.parametrize("number", range(20))
def test_scores_are_those_of_lucenes_formula(
    number: int, random_index: tuple[list[Passage], Any]
) -> None:
    passages, finder = random_index
    query = random_passages(100, 20)[number].text[:60]
    fields = [[getattr(passage, field) for passage in passages] for field in BOTH]
    expected = np.sum([lucene_scores(texts, query, rounded=True) for texts in fields], axis=0)
    matches = {int(place): 2.2 * expected[place] for place in np.flatnonzero(expected)}
    assert scores_found(finder, query) == pytest.approx(matches, rel=1e-4)
    assert_ranked(find(finder, query, 20), np.asarray(expected), 20)


@pytest.mark.parametrize(("k1", "b"), [(1.2, 0.75), (0.9, 0.4), (2.0, 0.0), (0.0, 1.0)])
def test_scores_of_bm25s_equal_the_exact_formula(k1: float, b: float, tmp_path: Path) -> None:
    pytest.importorskip("bm25s", reason="bm25s is not installed")
    passages = random_passages(7, 100)
    retriever = Bm25s(BOTH, "lucene", k1, b, 0.5)
    finder = built(retriever, passages, tmp_path)
    assert isinstance(finder, OpenedIndex)
    queries = [passage.text[:60] for passage in random_passages(107, 10)]
    scores = [retriever.scores(finder, query) for query in queries]
    finder.close()
    texts = [[getattr(passage, field) for passage in passages] for field in BOTH]
    expected = [
        sum(lucene_scores(each, query, rounded=False, k1=k1, b=b) for each in texts)
        for query in queries
    ]
    assert np.asarray(scores) == pytest.approx(np.asarray(expected), rel=1e-4, abs=1e-5)


def assert_ranked(places: Sequence[int], scores: NDArray[np.float64], k: int) -> None:
    """The `k` best in order, except that scores of the same six digits may stand either way."""
    best = np.sort(scores[scores > 0])[::-1][:k]
    assert len(set(places)) == len(places) == len(best)
    assert scores[list(places)] == pytest.approx(best, rel=3e-6)


@pytest.mark.parametrize(
    ("boosts", "ranking"),
    [
        ({"title": 2.0, "text": 1.0}, [0, 1]),
        ({"title": 1.0, "text": 2.0}, [1, 0]),
        ({"title": 1.0}, [0]),
    ],
    ids=["title", "text", "only the title"],
)
def test_a_boost_weighs_its_field(
    boosts: dict[str, float], ranking: list[int], tmp_path: Path
) -> None:
    passages = [Passage.of("slate", "nothing here"), Passage.of("nothing here", "slate")]
    assert find(built(Bm25(boosts, fill=False), passages, tmp_path), "slate", 2) == ranking


def test_ties_are_cut_by_position(tmp_path: Path) -> None:
    """As KGP's released code: the rest follows, the last first."""
    passages = [Passage(str(n), "T", "slate" if n % 3 else "slate slate") for n in range(3_000)]
    finder = built(Bm25(BOTH, fill=False), passages, tmp_path)
    wanted = [n for n in range(3_000) if n % 3 == 0] + [n for n in range(3_000) if n % 3]
    assert find(finder, "slate", 1_500) == wanted[:1_500]
    passages = [Passage.of("", text) for text in ("slate", "a heron", "the quarry", "slate quarry")]
    finder = built(Bm25({"text": 1.0}, fill=True), passages, tmp_path / "filled")
    assert find(finder, "quarry", 3) == [2, 3, 1]
    assert find(finder, "?!", 2) == [3, 2]
    assert find(finder, "heron", 3, (0, 1, 3)) == [1, 3, 0]
