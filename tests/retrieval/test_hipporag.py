"""HippoRAG 2: the graph of triples, and searches from the facts of a query."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from kgqa.errors import ConfigError
from kgqa.kg.exchange import ImportedFile, join_passages, read_hipporag
from kgqa.retrieval.hipporag import FactGraph, HippoRag, find_synonyms
from kgqa.types import Passage
from tests.retrieval.conftest import built, find, retriever_of
from tests.retrieval.test_entity_graph import DATA, measure_recall, read_musique

PASSAGES = (
    Passage.of("Silver Harbour", "A film of 1931 by Ida Ruhn."),
    Passage.of("Film", "A series of pictures with a director and a birthplace."),
    Passage.of("Ida Ruhn", "She was born in the town of Ekelby."),
    Passage.of("Otto Brandel", "He was born in Vessin."),
)
TRIPLES: tuple[list[list[str]], ...] = (
    [["Silver Harbour", "directed by", "Ida Ruhn"], ["Silver  Harbour", "released in", "1931"]],
    [],
    [["ida ruhn", "born in", "Ekelby"]],
    [["Otto Brandel", "born in", "Vessin"]],
)


@pytest.fixture
def hipporag(tmp_path: Path) -> HippoRag:
    file = tmp_path / "triples.jsonl"
    rows = [
        {"title": passage.title, "text": passage.text, "triples": triples}
        for passage, triples in zip(PASSAGES, TRIPLES, strict=True)
    ]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    retriever = retriever_of("retriever=hipporag", f"retriever.triples.path={file}")
    assert isinstance(retriever, HippoRag)
    return retriever


def test_the_graph_has_one_node_per_name_and_passage(hipporag: HippoRag) -> None:
    graph = FactGraph.of(PASSAGES, hipporag.triples)
    assert graph.facts[0] == ("silver harbour", "directed by", "ida ruhn")
    assert list(graph.names) == ["silver harbour", "ida ruhn", "1931", "ekelby", "otto brandel", "vessin"]
    assert graph.holders == [1, 2, 1, 1, 1, 1]
    assert graph.edges[0, 1] == 1  # the fact
    assert {edge for edge in graph.edges if edge[1] >= 6} == {(0, 6), (1, 6), (2, 6), (1, 8), (3, 8), (4, 9), (5, 9)}


def test_synonyms_have_similar_letters_and_more_than_two() -> None:
    names = ["harbour island", "harbour islands", "vessin", "uk", "uk.", "ekelby", "ostrand", "quillmere"]
    assert list(find_synonyms(names, 0.8, 100)) == [(0, 1)]
    assert not find_synonyms(names, 1.0, 100)


def test_a_passage_is_found_over_an_entity(hipporag: HippoRag, tmp_path: Path) -> None:
    finder = built(hipporag, PASSAGES, tmp_path / "index")
    assert find(finder, "Silver Harbour was directed by whom?", 3)[:2] == [0, 2]
    assert find(finder, "Silver Harbour was directed by whom?", 3, (1, 2)) == [2]
    assert find(finder, "pictures", 2) == [1]  # no fact has the word


def test_a_corpus_without_triples_is_rejected(hipporag: HippoRag, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"retriever\.triples: no passage of the corpus has a triple"):
        built(hipporag, [Passage.of("Other", "Another text.")], tmp_path / "index")


def test_a_missing_file_of_triples_names_the_key() -> None:
    with pytest.raises(ConfigError, match=r"retriever\.triples\.path=null: name the file of triples"):
        retriever_of("retriever=hipporag").identity()


def test_other_triples_are_another_index(hipporag: HippoRag, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text('{"title": "a", "text": "b", "triples": [["a", "b", "c"]]}\n', encoding="utf-8")
    assert hipporag.identity() != replace(hipporag, triples=ImportedFile(str(other))).identity()
    json.dumps(hipporag.identity())


def test_recall_on_musique_with_triples_of_gpt_3_5(hipporag: HippoRag, tmp_path: Path) -> None:
    passages, questions, gold = read_musique()
    packed = DATA / "triples" / "musique_train_openie_gpt-3.5-turbo-1106_1890.json.gz"
    raw, file = tmp_path / "openie.json", tmp_path / "imported.jsonl"
    raw.write_bytes(gzip.decompress(packed.read_bytes()))
    lines = (json.dumps(passage.json()) for passage in join_passages(read_hipporag(raw)))
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    retriever = replace(hipporag, triples=ImportedFile(str(file)))
    assert measure_recall(built(retriever, passages, tmp_path / "index"), questions, gold) >= 0.568
