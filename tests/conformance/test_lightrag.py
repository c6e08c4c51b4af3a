"""LightRAG's graph and searches, beside the package lightrag-hku 1.5.7 with scripted replies and simulated vectors.

The data has hashes of the program's entities and relations, and the positions of the passages that it found. Its
inputs are computed here: replies from GPT-3.5's triples of the first 300 passages of MuSiQue train, keywords from the
words of the questions, and vectors from hashes of words.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgqa.calls import Call, Generate
from kgqa.protocols import Query
from kgqa.retrieval.biencoder import Kind
from kgqa.retrieval.lightrag import LightRag
from kgqa.testing import drive
from kgqa.types import Completion, Passage
from tests.conformance.support import DATA, FOLDER, load_shared
from tests.retrieval.conftest import retriever_of

GRAPHS = FOLDER / "graphs"
RECORDED = Path(__file__).parent / "data" / "lightrag.jsonl.gz"
CORPUS = "corpora/musique_train_hipporag_corpus_1890.json.gz"
TRIPLES = DATA / "triples" / "musique_train_openie_gpt-3.5-turbo-1106_1890.json.gz"
COUNT, DIMENSIONS = 300, 64
WORD = re.compile(r"[^\W_]+")
pytestmark = pytest.mark.skipif(not GRAPHS.is_dir(), reason="no conformance/graphs in KGQA_DATA")


@cache
def word_vector(word: str) -> Any:
    seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big")
    return np.random.default_rng(seed).standard_normal(DIMENSIONS)


@dataclass(frozen=True)
class HashedWords:
    """The vector of a text is the sum of its words' vectors, with length 1."""

    def encode(self, kind: Kind, texts: Sequence[str]) -> Any:
        rows = [
            np.sum([word_vector(word) for word in WORD.findall(text.lower()) or [""]], axis=0)
            for text in texts
        ]
        return np.stack([row / np.linalg.norm(row) for row in rows]).astype(np.float32)

    def score(self, calls: Any) -> Any:
        raise AssertionError("searches encode texts, they score no calls")


def describe(triples: Sequence[Sequence[str]]) -> dict[str, list[dict[str, str]]]:
    """Return the triples as descriptions. An entity is described by its first triple."""
    entities: dict[str, str] = {}
    relations = []
    for head, relation, tail in triples:
        sentence = f"{head} {relation} {tail}"
        entities.setdefault(head, sentence)
        entities.setdefault(tail, sentence)
        if head != tail:
            keywords = relation.replace(" ", ", ")
            relations.append(
                {"source": head, "target": tail, "keywords": keywords, "description": sentence}
            )
    listed = [{"name": name, "description": text} for name, text in entities.items()]
    return {"entities": listed, "relationships": relations}


@cache
def replies() -> list[tuple[str, str]]:
    """Return the two replies to each passage: without the last triple, and this one with a longer description."""
    pairs = []
    documents = json.loads(gzip.decompress(TRIPLES.read_bytes()))["docs"][:COUNT]
    for position, document in enumerate(documents):
        triples = [
            each
            for each in document["extracted_triples"]
            if len(each) == 3 and all(isinstance(part, str) and part.strip() for part in each)
        ]
        first, second = describe(triples[:-1]), describe(triples[-1:])
        if first["entities"]:
            longer = dict(first["entities"][0])
            longer["description"] += f" and more of passage {position}"
            second["entities"].append(longer)
        pairs.append((json.dumps(first), json.dumps(second)))
    return pairs


def find_keywords(number: int, question: str) -> tuple[tuple[str, str, str], ...]:
    """Return capitalized words as low-level keywords, long other ones as high-level ones. Some questions lack one."""
    words = WORD.findall(question)
    low = [(word, "", "") for word in words[1:] if word[0].isupper() and number % 10 != 3]
    high = [
        ("", word, "") for word in words if word[0].islower() and len(word) > 4 and number % 10 != 6
    ]
    return (*low, *high)


def recorded() -> Iterator[Any]:
    with gzip.open(RECORDED, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


@dataclass(frozen=True)
class Built:
    """An index, and the passages that it was built from."""

    retriever: LightRag
    passages: Sequence[Passage]
    folder: Path


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Built:
    retriever = retriever_of(
        "retriever=lightrag",
        "retriever.merged_from=1000000",
        "retriever.max_description_tokens=1000000",
    )
    assert isinstance(retriever, LightRag)
    retriever = replace(retriever, nodes=replace(retriever.nodes, encoder=HashedWords()))
    passages = [Passage.of(each["title"], each["text"]) for each in load_shared(CORPUS)[:COUNT]]
    positions = {f"{each.title}\n{each.text}": at for at, each in enumerate(passages)}

    def reply(call: Call[Any]) -> Completion:
        assert isinstance(call, Generate)
        text = call.prompt.messages[-1].content.removeprefix("Passage:\n").partition("\n\nList:")[0]
        return Completion(replies()[positions[text]][call.prompt.name == "lightrag/glean"])

    folder = tmp_path_factory.mktemp("index")
    drive(retriever.expand(passages, folder, lambda _: None), reply)
    retriever.build(passages, folder, lambda _: None)
    return Built(retriever, passages, folder)


def shorten(*parts: object) -> str:
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:8]


def test_graph_is_that_of_the_program(index: Built) -> None:
    graph, program = index.retriever.load(index.folder), next(recorded())
    entities = [shorten(each.name, each.text, *each.holders) for each in graph.entities]
    relations = [
        shorten(*sorted(graph.find_names(at)), each.keywords, each.text, each.weight, *each.holders)
        for at, each in enumerate(graph.relations)
    ]
    assert sorted(entities) == program["entities"]
    assert sorted(relations) == program["relations"]


@pytest.mark.parametrize("mode", ["hybrid", "local", "global", "mix"])
def test_searches_find_the_passages_of_the_program(index: Built, mode: Any) -> None:
    finder = replace(index.retriever, mode=mode).open(index.passages, index.folder)
    questions = [
        json.loads(line)["question"]
        for line in (GRAPHS / "hipporag2/questions.jsonl").read_text("utf-8").splitlines()
    ]
    rows = [row for row in recorded() if row.get("mode") == mode]
    facts = [find_keywords(row["question"], questions[row["question"]]) for row in rows]
    found = finder.find(
        [
            Query(questions[row["question"]], 20, facts=each)
            for row, each in zip(rows, facts, strict=True)
        ]
    )
    pairs = list(zip(found, (row["passages"] for row in rows), strict=True))
    assert len(pairs) == 100
    # equal similarities have another order
    assert sum(list(ours) == theirs for ours, theirs in pairs) >= 95
    assert sum(list(ours[:5]) == theirs[:5] for ours, theirs in pairs) >= 99
