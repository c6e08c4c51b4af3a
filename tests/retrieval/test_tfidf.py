"""`retriever=tfidf` by hand, against the ranker of the same formula, and against scikit-learn."""

from __future__ import annotations

import gzip
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgqa.calls import Rank
from kgqa.errors import ConfigError
from kgqa.protocols import Finder, Query
from kgqa.retrieval.lexical import Lexical
from kgqa.retrieval.tfidf import ARRAYS, Tfidf
from kgqa.retrieval.topk import best_places
from kgqa.types import Passage

BOTH = Tfidf(("title", "text"))
CORPUS = Path(os.environ.get("KGQA_DATA", "data")) / "corpora" / "hotpotqa_train_hipporag_corpus_994.json.gz"


def built(folder: Path, passages: Sequence[Passage]) -> Finder:
    folder.mkdir(exist_ok=True)
    steps: list[int] = []
    BOTH.build(passages, folder, steps.append)
    assert sum(steps) == len(passages)
    return BOTH.open(passages, folder)


def passages(*texts: str) -> tuple[Passage, ...]:
    return tuple(Passage(f"p{place}", "", text) for place, text in enumerate(texts))


def test_weights_are_unit_vectors_of_count_times_idf(tmp_path: Path) -> None:
    """Two passages; "red" is in both: idf 1; "fox" and "hat" are in one: ln(3/2) + 1 = w."""
    built(tmp_path, passages("red fox", "red hat hat"))
    w = math.log(3 / 2) + 1
    idf, starts, places, weights = (np.load(tmp_path / f"{name}.npy") for name in ARRAYS)
    assert (tmp_path / "words.txt").read_text() == "red\nfox\nhat\n"
    assert idf.tolist() == pytest.approx([1, w, w])
    assert (starts.tolist(), places.tolist()) == ([0, 2, 3, 4], [0, 1, 0, 1])
    first, second = math.hypot(1, w), math.hypot(1, 2 * w)
    assert weights.tolist() == pytest.approx([1 / first, 1 / second, w / first, 2 * w / second])


def test_title_and_text_count_alike_and_case_does_not_matter(tmp_path: Path) -> None:
    finder = built(tmp_path, (Passage.of("Carrot", "Soup."), Passage.of("Soup", "carrot"), Passage.of("Town", "River")))
    assert finder.find([Query("SOUP carrot", 5), Query("river", 5)]) == [[0, 1], [2]]


def test_a_passage_without_a_query_word_is_not_found(tmp_path: Path) -> None:
    finder = built(tmp_path, passages("red fox", "blue whale"))
    assert finder.find([Query("fox", 5), Query("zebra", 5), Query("?!", 5), Query("", 5)]) == [[0], [], [], []]


def test_equal_scores_are_in_the_order_of_the_corpus(tmp_path: Path) -> None:
    finder = built(tmp_path, passages(*["same words"] * 9, "other words"))
    assert finder.find([Query("same words", 4), Query("words same", 4)]) == [[0, 1, 2, 3]] * 2


def test_only_the_places_asked_for_are_found(tmp_path: Path) -> None:
    finder = built(tmp_path, passages("red fox", "red red", "fox", "whale"))
    assert finder.find([Query("red", 5, among=(0, 3)), Query("red", 1, among=(0, 1))]) == [[0], [1]]


def test_a_corpus_without_words_is_searched_in_vain(tmp_path: Path) -> None:
    assert built(tmp_path, passages("…", "")).find([Query("fox", 3)]) == [[]]


def test_an_index_is_opened_again_after_it_was_closed(tmp_path: Path) -> None:
    finder = built(tmp_path, passages("red fox"))
    finder.find([Query("fox", 1)])
    finder.close()
    assert BOTH.open(passages("red fox"), tmp_path).find([Query("fox", 1)]) == [[0]]


def test_the_order_is_the_rankers_of_the_same_formula(tmp_path: Path) -> None:
    texts = ("red fox runs", "red hat", "the fox and the hound", "whale", "red red fox hat")
    (scores,) = Lexical().score([Rank("red fox hat", texts)])
    ranked = [place for place in best_places(np.array(scores), 5) if scores[place] > 0]
    assert built(tmp_path, passages(*texts)).find([Query("red fox hat", 5)]) == [ranked]


@pytest.mark.skipif(not CORPUS.is_file(), reason="KGQA_DATA does not have the corpora")
def test_rankings_are_scikit_learns_on_a_real_corpus(tmp_path: Path) -> None:
    text = pytest.importorskip("sklearn.feature_extraction.text", reason="scikit-learn is not installed")
    with gzip.open(CORPUS) as opened:
        corpus = [Passage.of(title, " ".join(sentences)) for title, sentences in json.load(opened).items()]
    queries = [" ".join(passage.text.split()[3:12]) for passage in corpus[::25]]
    vectorizer = text.TfidfVectorizer(token_pattern=r"[^\W_]+")
    matrix = vectorizer.fit_transform([f"{passage.title} {passage.text}" for passage in corpus])
    scores = (matrix @ vectorizer.transform(queries).T).toarray()
    found = built(tmp_path, corpus).find([Query(query, 10) for query in queries])
    assert len(queries) == 40
    assert found == [best_places(scores[:, column], 10) for column in range(len(queries))]


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), max_size=20), st.integers(0, 25))
def test_the_best_places_are_those_of_a_full_sort(scores: list[float], k: int) -> None:
    ranked = sorted(range(len(scores)), key=lambda place: (-scores[place], place))
    assert best_places(np.array(scores), k) == ranked[:k]
    assert best_places(np.array(scores), k, np.arange(len(scores)) + 100) == [place + 100 for place in ranked[:k]]


def test_texts_alone_are_searched_where_the_fields_say_so(tmp_path: Path) -> None:
    named, told = Passage.of("Tveit", "a fjord"), Passage.of("Norway", "Tveit is a fjord")
    nameless = Passage.of("Tveit", " ")
    text_alone = Tfidf(("text",))
    text_alone.build([named, told, nameless], tmp_path, lambda _: None)
    assert text_alone.open([named, told, nameless], tmp_path).find([Query("Tveit", 3)]) == [[2, 1]]
    assert text_alone.identity() != BOTH.identity()


def test_no_field_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"retriever\.fields"):
        Tfidf(())
