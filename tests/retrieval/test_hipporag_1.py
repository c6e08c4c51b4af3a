"""HippoRAG 1: walks from the entities of a query, beside the formulas of the paper (§2.3)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgqa.calls import Call, Generate, Search
from kgqa.protocols import Query
from kgqa.retrieval.hipporag import find_similar_spellings
from kgqa.retrieval.hipporag_1 import HippoRag1
from kgqa.testing import drive
from kgqa.types import Completion, Passage, Triple
from tests.retrieval.conftest import built, find, retriever_of
from tests.retrieval.test_hipporag import PASSAGES, hipporag  # noqa: F401 - a fixture

NAMES = ["ada", "holm", "gorm", "fausk", "bosund", "ulvik", "sill", "tarn"]


@pytest.fixture
def first(hipporag: Any) -> HippoRag1:  # noqa: F811 - the fixture
    bm25: Any = retriever_of("retriever=bm25")
    return HippoRag1(bm25, bm25, hipporag.triples, filter=False)


def compute_scores(
    triples: Sequence[Sequence[Triple]], entities: Sequence[str], damping: float
) -> Any:
    """Return p = n' P of the paper, by solving the equations of PageRank: n' = (1 - d) s + d n' W."""
    names = sorted({end for some in triples for each in some for end in (each.head, each.tail)})
    place = {name: number for number, name in enumerate(names)}
    edges, counts = np.zeros((len(names), len(names))), np.zeros((len(names), len(triples)))
    for position, some in enumerate(triples):
        for each in set(some):
            one, other = place[each.head], place[each.tail]
            edges[one, other] += one != other
            edges[other, one] += one != other
            for end in {one, other}:
                counts[end, position] += 1
    reset = np.zeros(len(names))
    for entity in entities:
        # its node specificity
        reset[place[entity]] = 1 / np.count_nonzero(counts[place[entity]])
    reset /= reset.sum()
    degrees = edges.sum(axis=1)
    steps = np.divide(
        edges, degrees[:, None], out=np.tile(reset, (len(names), 1)), where=degrees[:, None] > 0
    )
    walk = np.linalg.solve(np.eye(len(names)) - damping * steps.T, (1 - damping) * reset)
    return walk @ counts


def draw_triples(seed: int) -> list[list[Triple]]:
    rng = random.Random(seed)
    return [
        [Triple(rng.choice(NAMES), "r", rng.choice(NAMES)) for _ in range(rng.randint(1, 3))]
        for _ in range(8)
    ]


class Known:
    """Triples by the title of a passage."""

    path = "memory"

    def __init__(self, triples: Sequence[Sequence[Triple]]) -> None:
        self.by_title = {str(number): some for number, some in enumerate(triples)}

    def triples(self, passage: Passage) -> Sequence[Triple]:
        return self.by_title[passage.title]


@pytest.mark.parametrize("seed", range(20))
def test_passages_have_the_scores_of_the_paper(first: HippoRag1, tmp_path: Path, seed: int) -> None:
    triples = draw_triples(seed)
    entities = sorted({some[0].head for some in triples})[:2]
    retriever = replace(first, triples=Known(triples))  # type: ignore[arg-type]
    finder: Any = built(
        retriever, [Passage.of(str(n), f"text {n}") for n in range(len(triples))], tmp_path
    )
    (ranking,) = finder.find([Query("x", 8, facts=tuple((name, "", "") for name in entities))])
    assert find_similar_spellings(NAMES, 0.8, 100) == {}
    expected = compute_scores(triples, entities, retriever.damping).round(9)
    assert [expected[place] for place in ranking] == sorted(
        (score for score in expected if score > 0), reverse=True
    )


@pytest.mark.parametrize(
    ("reply", "facts"),
    [
        ('{"named_entities": ["Ida Ruhn", ""]}', (("Ida Ruhn", "", ""),)),
        ('{"named_entities": []}', ()),
        ("no JSON", ()),
    ],
    ids=["entities", "none", "unreadable"],
)
def test_a_search_starts_at_the_entities_of_the_model(
    first: HippoRag1, reply: str, facts: tuple[tuple[str, str, str], ...]
) -> None:
    calls: list[Call[Any]] = []

    def answer(call: Call[Any]) -> Any:
        calls.append(call)
        return Completion(reply) if isinstance(call, Generate) else PASSAGES

    call = Search("Where was Ida Ruhn born?", 2)
    assert drive(first.search(call), answer) == PASSAGES
    assert calls[1:] == [replace(call, facts=facts)]


def test_entities_are_capitalized_words_without_a_model(first: HippoRag1, tmp_path: Path) -> None:
    finder = built(first, PASSAGES, tmp_path)
    assert find(finder, "Where was the director of Silver Harbour born?", 2) == [0, 2]
    # no entity, so the ranking of passages
    assert find(finder, "a series of pictures", 1) == [1]
