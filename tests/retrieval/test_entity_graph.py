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
from kgqa.retrieval.entity_graph import EntityGraph, find_names
from kgqa.retrieval.lexical import Tfidf
from kgqa.types import Passage
from tests.retrieval.conftest import built, find, retriever_of

DATA = Path(os.environ.get("KGQA_DATA", ""))
PASSAGES = (
    Passage.of("Silver Harbour", "Silver Harbour is a film of 1931. It was directed by Ida Ruhn."),
    Passage.of("Film", "A film is a series of pictures. Films are directed by a director with a birthplace."),
    Passage.of("Ida Ruhn (director)", "She was born in the town of Ekelby and wrote for newspapers."),
    Passage.of("Otto Brandel", "Otto Brandel was born in Vessin. He never met a director of films."),
)


@pytest.fixture
def graph() -> Any:
    return retriever_of("retriever=entity_graph")


def test_names_are_found_without_case_and_do_not_overlap() -> None:
    known = frozenset(["ida ruhn", "ruhn", "ekelby", "ekelby film club", "film club", "who", "the who", "1964"])
    for text, names in {
        "Was Ida Ruhn born in Ekelby?": ["ida ruhn", "ekelby"],
        "Did IDA RUHN of the Ekelby Film Club win?": ["ida ruhn", "ekelby film club"],
        "was ida ruhn born in ekelby?": [],
        "Who founded The Who in 1964?": ["the who", "1964"],
    }.items():
        assert list(find_names(text, known)) == names


def test_a_passage_is_found_over_a_bridge(graph: EntityGraph, tmp_path: Path) -> None:
    question = "Where was the director of the film Silver Harbour born?"
    lexical = find(built(graph.passages, PASSAGES, tmp_path / "bm25"), question, 4)
    assert lexical.index(2) > 1
    finder = built(graph, PASSAGES, tmp_path / "graph")
    assert find(finder, question, 2) == [0, 2]
    question = "which director was born in a town?"  # without a known entity
    assert find(finder, question, 4) == find(built(graph.passages, PASSAGES, tmp_path / "bm25"), question, 4)
    with pytest.raises(ConfigError, match=r"retriever\.passages: Tfidf returns no scores"):
        replace(graph, passages=Tfidf(("text",), fill=False, ties="first"))


def test_a_pool_of_one_sentence_is_searched(graph: EntityGraph, tmp_path: Path) -> None:
    assert find(built(graph, PASSAGES[2:3], tmp_path), "Where was Ida Ruhn born?", 3) == [0]


def read_musique() -> tuple[list[Passage], list[Query], list[set[int]]]:
    """Return HippoRAG's corpus of MuSiQue's train set, 100 questions of it and the places of their gold passages."""
    file = DATA / "corpora" / "musique_train_hipporag_corpus_1890.json.gz"
    if not file.is_file():
        pytest.skip(f"no {file.name}; set KGQA_DATA")
    documents = json.loads(gzip.decompress(file.read_bytes()))
    places = {_key(document["title"], document["text"]): place for place, document in enumerate(documents)}
    questions, gold = list[Query](), list[set[int]]()
    records = gzip.decompress((DATA / "questions" / "musique_ans_dev.jsonl.gz").read_bytes()).decode().splitlines()
    for question in map(json.loads, records):
        keys = {_key(p["title"], p["paragraph_text"]) for p in question["paragraphs"] if p["is_supporting"]}
        if keys <= places.keys():
            questions.append(Query(question["question"], 5))
            gold.append({places[key] for key in keys})
    assert len(questions) == 100
    return [Passage.of(document["title"], document["text"]) for document in documents], questions, gold


def _key(title: str, text: str) -> str:
    return re.sub(r"\W+", "", title + text).lower()


def measure_recall(finder: Finder, questions: list[Query], gold: list[set[int]]) -> float:
    """Return the mean share of gold passages that are found."""
    return float(np.mean([len({*r} & g) / len(g) for r, g in zip(finder.find(questions), gold, strict=True)]))


def test_recall_on_musique_is_8_points_above_bm25(graph: EntityGraph, tmp_path: Path) -> None:
    passages, questions, gold = read_musique()
    finders = [built(retriever, passages, tmp_path / str(n)) for n, retriever in enumerate((graph.passages, graph))]
    lexical, found = (measure_recall(finder, questions, gold) for finder in finders)
    assert found > lexical + 0.08
