"""HippoRAG 2: the graph of triples, and searches from the facts of a query."""

from __future__ import annotations

import gzip
import json
import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from kgqa.calls import Call, Facts, Generate, Search
from kgqa.errors import ConfigError
from kgqa.identity.component import identity_of
from kgqa.kg.exchange import read_passages
from kgqa.protocols import Query
from kgqa.retrieval.composite import Hybrid
from kgqa.retrieval.hipporag import (
    FactGraph,
    HippoRag,
    OpenedFacts,
    TripleRetriever,
    clean_ascii,
    clean_unicode,
    find_near_names,
    find_similar_spellings,
)
from kgqa.retrieval.hipporag_1 import HippoRag1
from kgqa.testing import drive
from kgqa.types import Completion, Passage
from kgqa.util.loaders import free_loaded
from tests.retrieval.conftest import built, find, retriever_of
from tests.retrieval.test_entity_graph import DATA, measure_recall, read_musique
from tests.retrieval.word_vectors import Words, dense

PASSAGES = (
    Passage.of("Silver Harbour", "A film of 1931 by Ida Ruhn."),
    Passage.of("Film", "A series of pictures with a director and a birthplace."),
    Passage.of("Ida Ruhn", "She was born in the town of Ekelby."),
    Passage.of("Otto Brandel", "He was born in Vessin."),
)
TRIPLES: tuple[list[list[str]], ...] = (
    [["Silver Harbour", "directed by", "Ida Ruhn"], ["Silver  Harbour", "released in", "1931"]], [],
    [["ida ruhn", "born in", "Ekelby"]], [["Otto Brandel", "born in", "Vessin"]],
)  # fmt: skip


@pytest.fixture
def hipporag(tmp_path: Path) -> HippoRag:
    file = tmp_path / "triples.jsonl"
    rows = [
        {"title": passage.title, "text": passage.text, "triples": triples}
        for passage, triples in zip(PASSAGES, TRIPLES, strict=True)
    ]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    retriever = retriever_of("retriever=hipporag_bm25", f"retriever.triples.path={file}")
    assert isinstance(retriever, HippoRag)
    return retriever


def with_path(hipporag: HippoRag, path: Path | None) -> HippoRag:
    triples: Any = hipporag.triples
    return replace(hipporag, triples=replace(triples, path=path and str(path)))


def test_the_graph_has_one_node_per_name_and_passage(hipporag: HippoRag) -> None:
    graph = FactGraph.of([hipporag.triples.triples(passage) for passage in PASSAGES], clean_unicode)
    assert graph.facts[0] == ("silver harbour", "directed by", "ida ruhn")
    assert list(graph.names) == [
        "silver harbour",
        "ida ruhn",
        "1931",
        "ekelby",
        "otto brandel",
        "vessin",
    ]
    assert graph.holders == [1, 2, 1, 1, 1, 1]
    assert graph.edges[0, 1] == graph.edges[1, 0] == 1
    assert graph.edges[0, 6] == 1
    assert {edge for edge in graph.edges if edge[1] >= 6} == {
        (0, 6),
        (1, 6),
        (2, 6),
        (1, 8),
        (3, 8),
        (4, 9),
        (5, 9),
    }


@pytest.mark.parametrize(
    ("clean", "name"),
    [(clean_unicode, "łódź, on the ner"), (clean_ascii, "d   on the ner")],
    ids=["unicode", "ascii"],
)
def test_names_keep_their_letters_or_ascii_only(clean: Callable[[str], str], name: str) -> None:
    assert clean("Łódź, on  the Ner" if clean is clean_unicode else "Łódź, on the Ner") == name


NAMES = [
    "harbour island",
    "harbour islands",
    "vessin",
    "uk",
    "uk.",
    "ekelby",
    "ostrand",
    "quillmere",
]


@pytest.mark.parametrize(
    ("least", "edges"), [(0.8, {(0, 1), (1, 0)}), (1.0, set[tuple[int, int]]())]
)
def test_synonyms_without_an_encoder_share_letters(
    least: float, edges: set[tuple[int, int]]
) -> None:
    synonyms = find_similar_spellings(NAMES, least, 100)
    assert set(synonyms) == edges
    assert all(0.8 <= cosine < 1 for cosine in synonyms.values())


@pytest.mark.parametrize("least", [0.5, 0.8])
def test_similar_spellings_miss_no_pair(least: float) -> None:
    letters = random.Random(3)
    names = list(
        dict.fromkeys("".join(letters.choices("abc ", k=letters.randint(4, 9))) for _ in range(300))
    )
    grams = [Counter(f" {name} "[at : at + 3] for at in range(len(name))) for name in names]
    holders = Counter(gram for each in grams for gram in each)
    weights = np.array(
        [[each[gram] * math.log(len(names) / holders[gram]) for gram in holders] for each in grams]
    )
    cosines = weights @ weights.T / np.outer(*[np.linalg.norm(weights, axis=1)] * 2)
    long = [sum(map(str.isalnum, name)) > 2 for name in names]
    expected = {
        (one, other): pytest.approx(cosines[one, other], abs=1e-6)
        for one, other in zip(*(cosines >= least).nonzero(), strict=True)
        if one != other and long[one]
    }
    assert len(expected) > 20
    assert find_similar_spellings(names, least, 1_000) == expected


def test_synonyms_are_near_vectors_with_an_encoder() -> None:
    vectors = np.array([[1, 0], [2, 0.2], [0, 1], [0, 3]], dtype=np.float32)
    synonyms = find_near_names(
        ["constitution", "institutions", "uk", "united kingdom"], vectors, 0.9, 1
    )
    # a name of two letters has synonyms, but looks for none
    assert synonyms == {
        (0, 1): pytest.approx(0.995, abs=1e-3),
        (1, 0): pytest.approx(0.995, abs=1e-3),
        (3, 2): 1.0,
    }


DIRECTED = ("silver harbour", "directed by", "ida ruhn")
RELEASED = ("silver harbour", "released in", "1931")


def test_search_starts_from_the_facts_of_the_call(hipporag: HippoRag, tmp_path: Path) -> None:
    finder = built(hipporag, PASSAGES, tmp_path / "index")
    assert find(finder, "Silver Harbour was directed by whom?", 3)[:2] == [0, 2]
    assert find(finder, "Silver Harbour was directed by whom?", 3, (1, 2)) == [2]
    assert find(finder, "pictures", 2) == [1]  # no fact has the word
    assert isinstance(finder, OpenedFacts)
    birth = ("otto brandel", "born in", "vessin")
    query = Query("Vessin Otto Brandel and Silver Harbour directed", 2)
    assert set(finder.find_facts(query)) == {birth, DIRECTED}

    def search(*facts: tuple[str, str, str]) -> list[int]:
        return list(finder.find([replace(query, k=1, facts=facts)])[0])

    assert (search(DIRECTED), search(birth)) == ([0], [3])
    assert finder.find([Query("released directed", 2, facts=(DIRECTED,))]) == [
        [0, 2]
    ]  # no passage has these words
    assert (
        search() == search(("not", "a", "fact")) == find(finder.finders["passages"], query.text, 1)
    )


MANY = 'Sure: {"facts": [["Silver Harbour", "directed", "Ida Ruhn"], ["silver harbour", "directed by"]]}'
FIVE = json.dumps(
    {"facts": [["silver harbour", "directed by", "ida ruhn"]] * 4 + [["released", "in", "1931"]]}
)
CUT = '{"facts": [["silver harbour", "directed by", "ida ruhn"], ["silver harbour", "released'
NONE = (
    '{"facts": []}',
    '{"facts": [["silver harb',
    "None of them helps.",
    '{"facts": "silver harbour"}',
)


@pytest.mark.parametrize(
    "reply", ['{"facts": [["silver harbour", "directed by", "ida ruhn"]]}', MANY, FIVE, CUT, *NONE]
)
def test_the_filter_keeps_the_nearest_candidates(hipporag: HippoRag, reply: str) -> None:
    calls, facts = list[Call[Any]](), [DIRECTED, RELEASED]

    def answer(call: Call[Any]) -> Any:
        calls.append(call)
        return {Facts: tuple(facts), Generate: Completion(reply), Search: PASSAGES}[type(call)]

    call = Search("Who directed it?", 4, titles=("Film",))
    assert drive(hipporag.search(call), answer) == PASSAGES
    assert [type(each) for each in calls] == [Facts, Generate, Search]
    assert calls[-1] == replace(call, facts=() if reply in NONE else (DIRECTED,))
    calls.clear()
    facts.clear()
    # without facts no model is called
    drive(hipporag.search(call), answer)
    assert calls == [Facts("Who directed it?", hipporag.fact_count), replace(call, facts=())]


def test_identity_and_what_hipporag_cannot_be(hipporag: HippoRag, tmp_path: Path) -> None:
    assert identity_of(hipporag) != identity_of(replace(hipporag, filter=False))
    assert "model" in hipporag.uses
    assert not replace(hipporag, filter=False).uses
    (tmp_path / "other.jsonl").write_text(
        '{"title": "a", "text": "b", "triples": [["a", "b", "c"]]}\n', "utf-8"
    )
    assert identity_of(hipporag) != identity_of(with_path(hipporag, tmp_path / "other.jsonl"))
    json.dumps(identity_of(hipporag))
    bm25 = retriever_of("retriever=bm25")
    with pytest.raises(ConfigError, match=r"retriever\.lexical: HippoRag calls a model"):
        Hybrid(hipporag, bm25, constant=60, depth=10)
    Hybrid(replace(hipporag, filter=False), bm25, constant=60, depth=10)
    with pytest.raises(
        ConfigError, match=r"retriever\.triples: no passage of the corpus has a triple"
    ):
        built(hipporag, [Passage.of("Other", "Another text.")], tmp_path / "index")
    with pytest.raises(ConfigError, match=r"retriever\.triples\.path=no\.jsonl: no such file"):
        identity_of(with_path(hipporag, Path("no.jsonl")))


def test_triples_are_extracted_without_a_file(hipporag: HippoRag, tmp_path: Path) -> None:
    extracting = with_path(hipporag, None)
    assert (hipporag.writer, extracting.writer) == ("", "extractor")
    assert "model" in replace(extracting, filter=False).uses
    assert not extracting.pools

    def answer(call: Call[Any]) -> Any:
        assert isinstance(call, Generate)
        text = call.prompt.messages[-1].content
        place = next(place for place, passage in enumerate(PASSAGES) if passage.text in text)
        return Completion(json.dumps({"named_entities": [], "triples": TRIPLES[place]}))

    (tmp_path / "index").mkdir()
    counts: list[int] = []
    assert drive(extracting.expand(PASSAGES, tmp_path / "index", counts.append), answer) == ()
    assert counts == [1] * len(PASSAGES)
    finder = built(extracting, PASSAGES, tmp_path / "index")
    assert find(finder, "Silver Harbour was directed by whom?", 3)[:2] == [0, 2]
    assert identity_of(extracting) != identity_of(hipporag)
    json.dumps(identity_of(extracting))


@pytest.mark.slow
def test_recall_on_musique_with_triples_of_gpt_3_5(hipporag: HippoRag, tmp_path: Path) -> None:
    passages, questions, gold = read_musique()
    packed = DATA / "triples" / "musique_train_openie_gpt-3.5-turbo-1106_1890.json.gz"
    raw, file = tmp_path / "openie.json", tmp_path / "imported.jsonl"
    raw.write_bytes(gzip.decompress(packed.read_bytes()))
    lines = (json.dumps(passage.json()) for passage in read_passages(raw, "hipporag"))
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    retriever = with_path(hipporag, file)
    assert measure_recall(built(retriever, passages, tmp_path / "index"), questions, gold) >= 0.568


@dataclass(frozen=True)
class Served(Words):
    """An encoder on a server, with weights that can change."""

    can_change: ClassVar[bool] = True


@pytest.mark.slow
@pytest.mark.parametrize("kind", [HippoRag, HippoRag1])
def test_another_process_opens_the_index_of_a_server(
    hipporag: HippoRag, tmp_path: Path, kind: type[TripleRetriever]
) -> None:
    ranker = dense(Served())
    retriever = kind(ranker, ranker, hipporag.triples, filter=False)
    query = Query("Ida Ruhn", 2)
    expected = built(retriever, PASSAGES, tmp_path / "index").find([query])
    free_loaded()
    assert retriever.open(PASSAGES, tmp_path / "index").find([query]) == expected
