"""LightRAG: descriptions of entities and relations, and searches through them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgqa.calls import Call, Generate, Search
from kgqa.errors import ConfigError, EngineError
from kgqa.identity.component import identity_of
from kgqa.protocols import Query
from kgqa.retrieval.biencoder import Kind
from kgqa.retrieval.index import IndexFolder
from kgqa.retrieval.lightrag import LightRag
from kgqa.retrieval.lightrag_graph import DescribedGraph, DescribedTriples
from kgqa.testing import drive
from kgqa.types import Completion, Passage, Triple
from tests.retrieval.conftest import built, find, retriever_of
from tests.retrieval.word_vectors import Words


class UnitWords(Words):
    """Words with vectors of length 1."""

    def encode(self, kind: Kind, texts: Sequence[str]) -> Any:
        rows = super().encode(kind, texts)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


PASSAGES = (
    Passage.of("Silver Harbour", "A film of 1931 by Ida Ruhn."),
    Passage.of("Ida Ruhn", "She was born in the town of Ekelby."),
    Passage.of("Otto Brandel", "He was born in Vessin."),
)
DESCRIPTIONS: Sequence[DescribedTriples] = (
    DescribedTriples(
        [["Silver Harbour", "a film"], ["Ida Ruhn", "directed a film"]],
        [["Silver Harbour", "Ida Ruhn", "director, film", "who directed it"]],
    ),
    DescribedTriples(
        [["Ida Ruhn", "comes from a town"], ["Ekelby", "a town"]],
        [["Ida Ruhn", "Ekelby", "birth", "where she was born"]],
    ),
    DescribedTriples(
        [["Otto Brandel", "a painter"]], [["Vessin", "Otto Brandel", "birth", "a birth"]]
    ),
)
BIRTH = "Where was the director of Silver Harbour born?"


@pytest.fixture
def lightrag() -> LightRag:
    retriever = retriever_of("retriever=lightrag", "retriever.least_similarity=0.5")
    assert isinstance(retriever, LightRag)
    return replace(retriever, nodes=replace(retriever.nodes, encoder=UnitWords(256)))


def describe(call: Call[Any]) -> Completion:
    """Return the descriptions of the passage of an extraction. The second look finds nothing more."""
    assert isinstance(call, Generate)
    assert call.role == "extractor"
    number = next(at for at, passage in enumerate(PASSAGES) if passage.text in str(call.prompt))
    gleaned = call.prompt.name == "lightrag/glean"
    extraction = DescribedTriples([], []) if gleaned else DESCRIPTIONS[number]
    return Completion(json.dumps(extraction.json()))


def expand(
    lightrag: LightRag, folder: Path, reply: Callable[[Call[Any]], Any] = describe
) -> list[Passage]:
    folder.mkdir(exist_ok=True)
    return list(drive(lightrag.expand(PASSAGES, folder, lambda _: None), reply))


@pytest.fixture
def index(lightrag: LightRag, tmp_path: Path) -> Any:
    expand(lightrag, tmp_path / "index")
    return built(lightrag, PASSAGES, tmp_path / "index")


def keywords(low: str, high: str, k: int = 3) -> Query:
    return Query(BIRTH, k, facts=((low, "", ""), ("", high, "")))


def test_graph_joins_the_descriptions_of_a_name() -> None:
    graph = DescribedGraph.of(DESCRIPTIONS)
    assert graph.entities["Ida Ruhn"].text == "directed a film<SEP>comes from a town"
    assert graph.entities["Ida Ruhn"].holders == [0, 1]
    # an end of a relation that was not described itself
    assert graph.entities["Vessin"].text == "a birth"
    relation = graph.relations["Ida Ruhn", "Silver Harbour"]
    assert (relation.keywords, relation.weight) == ({"director", "film"}, 1)


@pytest.mark.parametrize(
    ("low", "high", "places"),
    [
        ("Silver Harbour a film", "", [0]),
        ("Ida Ruhn directed a film", "", [0, 1]),
        ("", "birth Otto Brandel Vessin a birth", [2]),
        ("nothing near", "", []),
    ],
    ids=["entity", "entity of two passages", "relation", "none"],
)
def test_passages_of_near_descriptions_are_found(
    index: Any, low: str, high: str, places: list[int]
) -> None:
    (found,) = index.find([keywords(low, high)])
    assert sorted(found) == places


def test_keywords_missing_in_a_query_are_the_whole_corpus(index: Any) -> None:
    assert sorted(index.find([Query(BIRTH, 3, facts=())])[0]) == [0, 1, 2]
    # without a model the query is its only keyword
    assert find(index, "Silver Harbour a film", 1) == [0]
    assert find(index, "Ida Ruhn directed a film", 3, (1, 2)) == [1]


@pytest.mark.parametrize(
    ("mode", "places"),
    [("local", [0]), ("global", [2]), ("mix", [0, 1, 2])],
)
def test_modes_start_at_entities_or_relations(
    lightrag: LightRag, tmp_path: Path, mode: Any, places: list[int]
) -> None:
    expand(lightrag, tmp_path / "index")
    index = built(replace(lightrag, mode=mode), PASSAGES, tmp_path / "index")
    query = keywords("Silver Harbour a film", "birth Otto Brandel Vessin a birth")
    assert sorted(index.find([query])[0]) == places


def test_descriptions_are_results_if_wanted(lightrag: LightRag, tmp_path: Path) -> None:
    folder = IndexFolder(
        tmp_path / "index", replace(lightrag, results="all"), {"file": "hash"}, "kgqa data index"
    )
    manifest = folder.build(PASSAGES, lambda *_: None, lambda program: drive(program, describe))
    assert manifest["corpus"]["added"] == 5 + 3
    with closing(folder.open()) as opened:
        facts = (("Silver Harbour a film", "", ""),)
        (found,) = opened.search([Search(BIRTH, 3, facts=facts)])
    assert [passage.title for passage in found[1:]] == [
        "Silver Harbour",
        "Ida Ruhn – Silver Harbour",
    ]
    assert found[0] in PASSAGES


@pytest.mark.parametrize(
    ("limits", "merges"),
    [({"merged_from": 2}, 1), ({"max_description_tokens": 5}, 1), ({}, 0)],
    ids=["number", "length", "few"],
)
def test_many_descriptions_are_merged(
    lightrag: LightRag, tmp_path: Path, limits: Any, merges: int
) -> None:
    prompts = []

    def reply(call: Any) -> Completion:
        if call.prompt.name != "lightrag/merge":
            return describe(call)
        prompts.append(str(call.prompt))
        return Completion(" one text ")

    lightrag = replace(lightrag, **limits)
    expand(lightrag, tmp_path, reply)
    texts = {
        name: text
        for name, text, _ in json.loads((tmp_path / "graph.json").read_bytes())["entities"]
    }
    assert len(prompts) == merges
    assert texts["Ida Ruhn"] == ("one text" if merges else "directed a film<SEP>comes from a town")


def test_second_look_adds_and_replaces_descriptions() -> None:
    first = DescribedTriples([["Ekelby", "a town"], ["Vessin", "a long text"]], [])
    second = DescribedTriples(
        [["Ekelby", "a town of slate"], ["Vessin", "short"], ["Tarn", "a river"]], []
    )
    assert first.add(second).entities == [
        ["Ekelby", "a town of slate"],
        ["Vessin", "a long text"],
        ["Tarn", "a river"],
    ]


@pytest.mark.parametrize(
    ("reply", "entities"),
    [
        ('{"entities": [{"name": " \\"Ida  Ruhn\\"", "description": "a"}]}', [["Ida Ruhn", "a"]]),
        ('{"entities": [{"name": "Ida", "description": "a"}, {"name": "Ot', [["Ida", "a"]]),
        (
            '{"entities": [{"name": "12", "description": "a"}, {"name": "", "description": "b"}, 3]}',
            [],
        ),
    ],
    ids=["quoted", "cut", "no names"],
)
def test_replies_are_read(reply: str, entities: list[list[str]]) -> None:
    extraction = DescribedTriples.read(reply)
    assert extraction is not None
    assert extraction.entities == entities


def test_failed_and_unreadable_passages_are_counted(lightrag: LightRag, tmp_path: Path) -> None:
    def reply(call: Any) -> Any:
        if PASSAGES[0].text in str(call.prompt):
            return EngineError("filtered")
        return Completion("No.") if PASSAGES[2].text in str(call.prompt) else describe(call)

    expand(lightrag, tmp_path, reply)
    counts = {"failed": 1, "unreadable": 1, "without_triples": 2}
    assert lightrag.count_lacks(PASSAGES, tmp_path) == counts


@pytest.mark.parametrize(
    ("reply", "facts"),
    [
        (
            '{"high_level_keywords": ["Birth"], "low_level_keywords": ["Ida Ruhn", " "]}',
            (("Ida Ruhn", "", ""), ("", "Birth", "")),
        ),
        ("no JSON", ()),
    ],
    ids=["keywords", "unreadable"],
)
def test_search_starts_at_the_keywords_of_the_model(
    lightrag: LightRag, reply: str, facts: tuple[tuple[str, str, str], ...]
) -> None:
    calls: list[Call[Any]] = []

    def answer(call: Call[Any]) -> Any:
        calls.append(call)
        return Completion(reply) if isinstance(call, Generate) else PASSAGES

    call = Search(BIRTH, 2)
    assert drive(lightrag.search(call), answer) == PASSAGES
    assert calls[1:] == [replace(call, facts=facts)]


def test_triples_of_a_file_replace_descriptions(tmp_path: Path) -> None:
    file = tmp_path / "triples.jsonl"
    rows = [
        {"title": passage.title, "text": passage.text, "triples": [[one, keyword, other]]}
        for passage, each in zip(PASSAGES, DESCRIPTIONS, strict=True)
        for one, other, keyword, _ in each.relations
    ]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    retriever: Any = retriever_of("retriever=lightrag", f"retriever.triples.path={file}")
    retriever = replace(retriever, nodes=replace(retriever.nodes, encoder=UnitWords(256)))
    assert not retriever.writer
    assert find(built(retriever, PASSAGES, tmp_path / "index"), "Ida Ruhn birth Ekelby", 1) == [1]
    assert retriever.count_lacks(PASSAGES, None) == {"unmatched": 0, "without_triples": 0}
    with pytest.raises(
        ConfigError, match=r"retriever\.results=all returns descriptions by a model"
    ):
        replace(retriever, results="all")


def test_entity_is_described_by_its_first_triple() -> None:
    triples = [Triple("a", "is", "b"), Triple("b", "has", "c"), Triple("c", "is", "c")]
    extraction = DescribedTriples.of_triples(triples)
    assert extraction.entities == [["a", "a is b"], ["b", "a is b"], ["c", "b has c"]]
    assert len(extraction.relations) == 2


def test_settings_of_the_index_are_in_the_identity(lightrag: LightRag) -> None:
    assert identity_of(lightrag) != identity_of(replace(lightrag, gleanings=0))
    with pytest.raises(ConfigError, match=r"retriever\.nodes: Bm25 has no embeddings"):
        replace(lightrag, nodes=retriever_of("retriever=bm25"))  # type: ignore[arg-type]
    retriever: Any = retriever_of("retriever=lightrag", "retriever.triples.path=none.jsonl")
    with pytest.raises(ConfigError, match=r"retriever\.triples\.path=none\.jsonl: no such file"):
        identity_of(retriever.triples)
