"""TF-IDF and Levenshtein, as rankers and as retrievers: by hand, and against scikit-learn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgqa.calls import Rank
from kgqa.errors import ConfigError
from kgqa.identity.component import identity_of
from kgqa.protocols import Finder, Query
from kgqa.retrieval.lexical import Fuzzy, Levenshtein, Lexical, Tfidf
from kgqa.retrieval.search import rank_positions
from kgqa.types import Passage

BOTH = Tfidf(("title", "text"), fill=False, ties="first")
TEXT = Tfidf(("text",), fill=False, ties="first")


def built(folder: Path, passages: Sequence[Passage], retriever: Tfidf = BOTH) -> Finder:
    retriever.build(passages, folder, lambda _: None)
    return retriever.open(passages, folder)


def passages(*texts: str) -> tuple[Passage, ...]:
    return tuple(Passage(f"p{place}", "", text) for place, text in enumerate(texts))


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), max_size=20), st.integers(0, 25))
def test_the_best_places_are_those_of_a_full_sort(scores: list[float], k: int) -> None:
    ranked = sorted(range(len(scores)), key=lambda place: (-scores[place], place))
    assert rank_positions(np.array(scores), k) == ranked[:k]
    assert rank_positions(np.array(scores), k, np.arange(len(scores)) + 100) == [
        place + 100 for place in ranked[:k]
    ]


def test_lexical_scores_by_hand() -> None:
    """Two texts; "red" is in both: weight 1; "fox" and "hat" are in one: ln(3/2) + 1 = w."""
    w = math.log(3 / 2) + 1
    (scores,) = Lexical().score([Rank("Red fox!", ("red fox", "red hat"))])
    assert scores == (1.0, round(1 / (1 + w * w), 6))
    # an unseen word weighs ln(2/1) + 1
    ((score,),) = Lexical().score([Rank("fox whale", ("fox",))])
    assert score == round(1 / math.sqrt(1 + (math.log(2) + 1) ** 2), 6)
    assert Lexical().score([Rank("fox", ("", "…")), Rank("", ("fox",))]) == [(0.0, 0.0), (0.0,)]


def test_lexical_scores_ignore_earlier_queries() -> None:
    """Weights of the texts are kept between queries. An unseen word of a query must not change them."""
    texts = ("red fox", "red hat")
    alone = Lexical().score([Rank("red fox", texts)])
    assert Lexical().score([Rank("whale", texts), Rank("red fox", texts)])[1:] == alone


SOUP = (Passage.of("Carrot", "Soup."), Passage.of("Soup", "carrot"), Passage.of("Town", "River"))
REDS = [Query("red", 5, among=(0, 3)), Query("red", 1, among=(0, 1))]


@pytest.mark.parametrize(
    ("corpus", "queries", "places"),
    [
        (SOUP, [Query("SOUP carrot", 5), Query("river", 5)], [[0, 1], [2]]),
        (
            passages("red fox", "blue whale"),
            [Query(text, 5) for text in ("fox", "zebra", "?!", "")],
            [[0], [], [], []],
        ),
        (passages(*["same words"] * 9, "other words"), [Query("same words", 4)], [[0, 1, 2, 3]]),
        (passages("red fox", "red red", "fox", "whale"), REDS, [[0], [1]]),
        (passages("…", ""), [Query("fox", 3)], [[]]),
    ],
)
def test_tfidf_finds_passages_with_a_word_of_the_query(
    tmp_path: Path, corpus: Any, queries: Any, places: Any
) -> None:
    finder = built(tmp_path, corpus)
    assert finder.find(queries) == places
    finder.close()
    assert BOTH.open(corpus, tmp_path).find(queries) == places


def test_retriever_and_ranker_have_the_same_formula(tmp_path: Path) -> None:
    """Words of one character do not count, as in scikit-learn and so in KGP's released code."""
    texts = (
        "red fox runs",
        "red hat",
        "the fox and the hound",
        "whale",
        "red red fox hat",
        "a b c",
        "a red",
    )
    (scores,) = Lexical().score([Rank("a red fox hat", texts)])
    assert scores[5] == 0
    assert scores[6] == Lexical().score([Rank("a red fox hat", (*texts[:6], "red"))])[0][6]
    ranked = [place for place in rank_positions(np.array(scores), 7) if scores[place] > 0]
    assert built(tmp_path, passages(*texts)).find([Query("a red fox hat", 7)]) == [ranked]


def test_fields_fill_and_ties(tmp_path: Path) -> None:
    """KGP finds k passages, the last of equals first."""
    corpus = (
        Passage.of("Tveit", "a fjord"),
        Passage.of("Norway", "Tveit is a fjord"),
        Passage.of("Tveit", " "),
    )
    assert built(tmp_path, corpus, TEXT).find([Query("Tveit", 3)]) == [[2, 1]]
    assert identity_of(TEXT) != identity_of(BOTH)
    with pytest.raises(ConfigError, match=r"retriever\.fields"):
        Tfidf((), fill=False, ties="first")
    animals = passages("whale", "red hat", "blue whale", "red hat", "red fox")
    finder = built(tmp_path, animals, Tfidf(("text",), fill=True, ties="last"))
    results = finder.find([Query("red fox", 4), Query("red", 5), Query("fox", 2, among=(0, 2, 4))])
    assert results == [[4, 3, 1, 2], [3, 1, 4, 2, 0], [4, 2]]


def distance(left: str, right: str) -> int:
    """Levenshtein's own recurrence, row by row."""
    row = list(range(len(right) + 1))
    for above, letter in enumerate(left, start=1):
        before = [above]
        for column, other in enumerate(right, start=1):
            before.append(min(row[column] + 1, before[-1] + 1, row[column - 1] + (letter != other)))
        row = before
    return row[-1]


@given(st.text("abAB ", max_size=12), st.text("abAB ", max_size=12))
def test_the_score_is_the_textbook_distance(query: str, text: str) -> None:
    pytest.importorskip("rapidfuzz", reason="rapidfuzz is not installed")
    longest = max(len(query), len(text))
    expected = 1 - distance(query.lower(), text.lower()) / longest if longest else 1.0
    ((score,),) = Levenshtein().score([Rank(query, (text,))])
    assert score == pytest.approx(expected, abs=1e-6)


def test_tfidf_orders_by_similarity_and_then_position(tmp_path: Path) -> None:
    pytest.importorskip("rapidfuzz", reason="rapidfuzz is not installed")
    query = "Who was born in Pellery"
    corpus = passages(query, "who is born in pellery?", "carrots", query)
    steps: list[int] = []
    fuzzy = Fuzzy("similarity")
    fuzzy.build(corpus, tmp_path, steps.append)
    assert (sum(steps), list(tmp_path.iterdir())) == (4, [])
    queries = [
        Query(f"{query}?", 3),
        Query("carrot", 1),
        Query(f"{query}?", 3, among=(1, 2)),
        Query("x", 3, among=()),
    ]
    assert fuzzy.open(corpus, tmp_path).find(queries) == [[0, 3, 1], [2], [1, 2], []]
    corpus = passages(
        f"{query} is told in the chronicle of the town.", "carrots", "was born in Pellery"
    )
    assert Fuzzy("distance").open(corpus, tmp_path).find(queries[:1]) == [
        [2, 1, 0]
    ]  # prefers short passages
