"""The graph of entities, on a few passages and on the corpora of the datasets."""

from __future__ import annotations

import gzip
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgqa.errors import ConfigError
from kgqa.protocols import Finder, Query
from kgqa.retrieval.composite import Hybrid
from kgqa.retrieval.entity_graph import EntityGraph, find_names
from kgqa.retrieval.lexical import Tfidf
from kgqa.types import Passage
from tests.retrieval.conftest import built, find, needed, retriever_of

DATA = Path(os.environ.get("KGQA_DATA", ""))
PASSAGES = (
    Passage.of("Silver Harbour", "Silver Harbour is a film of 1931. It was directed by Ida Ruhn."),
    Passage.of(
        "Film",
        "A film is a series of pictures. Films are directed by a director with a birthplace.",
    ),
    Passage.of(
        "Ida Ruhn (director)", "She was born in the town of Ekelby and wrote for newspapers."
    ),
    Passage.of(
        "Otto Brandel", "Otto Brandel was born in Vessin. He never met a director of films."
    ),
)


@pytest.fixture
def graph() -> Any:
    return retriever_of("retriever=entity_graph")


KNOWN = frozenset(
    [
        "ida ruhn",
        "ruhn",
        "ekelby",
        "ekelby film club",
        "film club",
        "who",
        "the who",
        "1964",
        "lodz",
        "beatle",
    ]
)
NAMES = {
    "Was Ida Ruhn born in Ekelby?": ["ida ruhn", "ekelby"],
    "Did IDA RUHN of the Ekelby Film Club win?": ["ida ruhn", "ekelby film club"],
    "was ida ruhn born in ekelby?": [],
    "Who founded The Who in 1964?": ["the who", "1964"],
    "Did The Beatles play in Łódź?": ["beatle", "lodz"],
}


@pytest.mark.parametrize("text", NAMES)
def test_entity_names_are_extracted_from_texts(text: str) -> None:
    assert find_names(text, KNOWN, fold=True) == NAMES[text]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("was ida ruhn born in ekelby?", ["ida ruhn"]),
        ("did ida ruhns film club ask who the who were?", ["ida ruhn", "film club"]),
    ],
)
def test_names_of_two_words_need_no_capitals(text: str, names: list[str]) -> None:
    assert find_names(text, KNOWN, fold=True, any_case=True) == names


@pytest.mark.parametrize(
    "question",
    ["Was Ida Ruhn the director?", "was ida ruhn the director?", "Was Ída Ruhn the director?"],
)
def test_capitals_of_a_question_change_no_result(
    graph: EntityGraph, tmp_path: Path, question: str
) -> None:
    finder = built(graph, PASSAGES, tmp_path)
    assert find(finder, question, 1) == [2]


def test_title_edges_count_more_than_mentions(graph: EntityGraph, tmp_path: Path) -> None:
    passages = [
        Passage.of("Vessin Choir", "Ekelby was the home of its director, and of the harbour."),
        Passage.of("Ekelby", "It is a town of the director with a harbour."),
    ]

    def search(weight: float) -> list[int]:
        return find(
            built(replace(graph, title_weight=weight), passages, tmp_path / str(weight)),
            "Who ran Ekelby?",
            2,
        )

    assert (search(0.1), search(6.0)) == ([0, 1], [1, 0])


def test_search_reaches_a_passage_over_a_bridge(graph: EntityGraph, tmp_path: Path) -> None:
    question = "Where was the director of the film Silver Harbour born?"
    lexical = find(built(graph.passages, PASSAGES, tmp_path / "bm25"), question, 4)
    assert lexical.index(2) > 1
    finder = built(graph, PASSAGES, tmp_path / "graph")
    assert find(finder, question, 2) == [0, 2]
    question = "which director was born in a town?"  # without a known entity
    assert find(finder, question, 4) == find(
        built(graph.passages, PASSAGES, tmp_path / "bm25"), question, 4
    )
    with pytest.raises(ConfigError, match=r"retriever\.passages: Tfidf returns no scores"):
        replace(graph, passages=Tfidf(("text",), fill=False, ties="first"))


@pytest.mark.parametrize(
    ("text", "is_known"),
    [("Who directed it?", False), ("Was Ida Ruhn born there?", True)],
    ids=["no entity", "entity"],
)
def test_question_without_entities_is_recognized(
    graph: EntityGraph, tmp_path: Path, text: str, is_known: bool
) -> None:
    finder: Any = built(graph, PASSAGES, tmp_path)
    assert finder.has_entities(text) == is_known


def test_passages_without_entities_are_counted(graph: EntityGraph, tmp_path: Path) -> None:
    passages = [*PASSAGES, Passage.of("", "it rained all day."), Passage.of("", "and all night.")]
    built(graph, passages, tmp_path)
    assert graph.count_lacks(passages, tmp_path) == {"without_entities": 2}
    assert graph.count_lacks(passages, None) == {}


def test_a_pool_of_one_sentence_is_searched(graph: EntityGraph, tmp_path: Path) -> None:
    assert find(built(graph, PASSAGES[2:3], tmp_path), "Where was Ida Ruhn born?", 3) == [0]


@pytest.mark.parametrize("passages", ["bm25s", "elasticsearch", "hybrid"])
def test_passages_are_ranked_by_retrievers_with_scores(
    graph: EntityGraph,
    tmp_path: Path,
    passages: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if passages == "hybrid":
        bm25 = retriever_of("retriever=bm25")
        ranker: Any = Hybrid(bm25, bm25, constant=60, depth=10)
    else:
        needed(passages)
        ranker = retriever_of(f"retriever={passages}")
    if passages == "elasticsearch":
        monkeypatch.setenv("KGQA_ES_URL", request.getfixturevalue("stand_in").url)
    finder = built(replace(graph, passages=ranker), PASSAGES, tmp_path)
    assert find(finder, "Where was the director of the film Silver Harbour born?", 2) == [0, 2]
    finder.close()


def read_musique() -> tuple[list[Passage], list[Query], list[set[int]]]:
    """Return HippoRAG's corpus of MuSiQue's train set, 100 questions of it and the places of their gold passages."""
    file = DATA / "corpora" / "musique_train_hipporag_corpus_1890.json.gz"
    if not file.is_file():
        pytest.skip(f"no {file.name}; set KGQA_DATA")
    documents = json.loads(gzip.decompress(file.read_bytes()))
    places = {
        _key(document["title"], document["text"]): place for place, document in enumerate(documents)
    }
    questions, gold = list[Query](), list[set[int]]()
    records = (
        gzip.decompress((DATA / "questions" / "musique_ans_dev.jsonl.gz").read_bytes())
        .decode()
        .splitlines()
    )
    for question in map(json.loads, records):
        keys = {
            _key(p["title"], p["paragraph_text"])
            for p in question["paragraphs"]
            if p["is_supporting"]
        }
        if keys <= places.keys():
            questions.append(Query(question["question"], 5))
            gold.append({places[key] for key in keys})
    assert len(questions) == 100
    return (
        [Passage.of(document["title"], document["text"]) for document in documents],
        questions,
        gold,
    )


def _key(title: str, text: str) -> str:
    return re.sub(r"\W+", "", title + text).lower()


def measure_recall(finder: Finder, questions: list[Query], gold: list[set[int]]) -> float:
    """Return the mean share of gold passages that are found."""
    return float(
        np.mean([len({*r} & g) / len(g) for r, g in zip(finder.find(questions), gold, strict=True)])
    )


@pytest.mark.slow
def test_recall_on_musique_is_8_points_above_bm25(graph: EntityGraph, tmp_path: Path) -> None:
    passages, questions, gold = read_musique()
    finders = [
        built(retriever, passages, tmp_path / str(n))
        for n, retriever in enumerate((graph.passages, graph))
    ]
    lexical, by_graph = (measure_recall(finder, questions, gold) for finder in finders)
    assert by_graph > lexical + 0.08
