"""Retrievers made of others: fusion, KGP's halves and the two-hop beam, on rankings and vectors worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from kgqa.errors import ConfigError
from kgqa.identity.component import identity_of
from kgqa.protocols import Finder, Query
from kgqa.retrieval.biencoder import Kind
from kgqa.retrieval.composite import Hybrid, Knn, Mdr, fuse_ranks
from kgqa.retrieval.lexical import Tfidf
from kgqa.types import Json, Passage
from tests.retrieval.word_vectors import Words, dense

PASSAGES = tuple(
    Passage(f"p{place}", "", letters)
    for place, letters in enumerate(["a", "ab", "b", "bc", "c", "d"])
)


@dataclass(frozen=True)
class Ranked:
    """A retriever that always finds the same, and writes into its folder that it was built there."""

    places: tuple[int, ...]
    pools: ClassVar[bool] = True

    def identity(self) -> Mapping[str, Json]:
        return {"retriever": "ranked", "places": list(self.places)}

    def build(
        self, passages: Sequence[Passage], folder: Path, advance: Callable[[int], None]
    ) -> None:
        (folder / "built").write_text(str(self.places))
        for _ in passages:
            advance(1)

    def open(self, passages: Sequence[Passage], folder: Path) -> Finder:
        assert (folder / "built").read_text() == str(self.places)
        return self

    def find(self, queries: Sequence[Query]) -> Sequence[Sequence[int]]:
        allowed = [
            set(range(100)) if query.among is None else set(query.among) for query in queries
        ]
        return [
            [p for p in self.places if p in ok][: query.k]
            for query, ok in zip(queries, allowed, strict=True)
        ]

    def close(self) -> None:
        """Nothing is open."""


class NoPools(Ranked):
    pools = False


class Letters(Words):
    """An encoder whose vectors count the letters a to d: scores of short words can be worked out by hand."""

    def encode(self, kind: Kind, texts: Sequence[str]) -> Any:
        return np.array(
            [[text.count(letter) for letter in "abcd"] for text in texts], dtype=np.float32
        )


def mdr(**changes: Any) -> Mdr:
    fields = {
        "dense": dense(Letters()),
        "first_hop": 2,
        "second_hop": 1,
        "score": "sum",
        "separator": " ",
    }
    return Mdr(**{**fields, **changes})


def built(retriever: Any, folder: Path, passages: Sequence[Passage] = PASSAGES) -> Finder:
    folder.mkdir(exist_ok=True)
    steps: list[int] = []
    retriever.build(passages, folder, steps.append)
    assert sum(steps) == len(passages)
    finder: Finder = retriever.open(passages, folder)
    return finder


def test_hybrid_sums_the_reciprocals_of_deeper_ranks(tmp_path: Path) -> None:
    """1: 1/61 + 1/62; 2: 1/62 + 1/61, the same, so by place; 7: 1/63 twice; 5: 1/64 and nothing else."""
    assert [position for position, _ in fuse_ranks([[1, 2, 7, 5], [2, 1, 7]], 60)] == [1, 2, 7, 5]
    assert fuse_ranks([[3], [4]], 60) == [(3, 1 / 61), (4, 1 / 61)]
    assert fuse_ranks([[], []], 60) == []
    hybrid = Hybrid(lexical=Ranked((0, 1, 2, 3)), dense=Ranked((4, 5, 2, 3)), constant=60, depth=4)
    assert built(hybrid, tmp_path).find([Query("q", 2)]) == [[2, 3]]
    shallow = Hybrid(lexical=Ranked((0, 1, 2, 3)), dense=Ranked((4, 5, 2, 3)), constant=60, depth=1)
    assert built(shallow, tmp_path).find([Query("q", 2), Query("q", 3)]) == [[0, 4], [2, 0, 4]]


@pytest.mark.parametrize(
    ("fuzzy", "k", "places"),
    [
        ((0, 1, 2), 4, [5, 4, 0, 1]),
        ((0, 1, 2), 5, [5, 4, 3, 0, 1]),
        ((0, 1, 2), 1, [5]),
        ((4, 5, 0, 1), 4, [5, 4, 0, 1]),
    ],
    ids=["even", "odd", "one", "passages of both halves are replaced"],
)
def test_knn_has_one_half_from_each_the_dense_first(
    fuzzy: tuple[int, ...], k: int, places: list[int], tmp_path: Path
) -> None:
    assert built(Knn(dense=Ranked((5, 4, 3)), fuzzy=Ranked(fuzzy)), tmp_path).find(
        [Query("q", k)]
    ) == [places]


def test_mdr_searches_with_question_and_passage(tmp_path: Path) -> None:
    """Question "a": a and ab score 1. "a a" finds ab (2), then b (0); "a ab" finds a (2), then b (1).

    The sums: a and ab 3 in both orders, ab and b 2, a and b 1.
    Question "bb": ab, b and bc score 2 each; the first two by place are ab and b.
    "bb ab" finds, ab itself left out, b (3); "bb b" finds ab (3); "bb bc" finds ab (3): each pair's sum is 5.
    With "d" found first by its title, the second query is "d d" and not "d ".
    """
    finder = built(mdr(second_hop=2), tmp_path)
    assert finder.find([Query("a", 6)]) == [[0, 1, 2]]
    assert built(mdr(), tmp_path).find([Query("bb", 6)]) == [[1, 2]]
    assert built(mdr(first_hop=3), tmp_path).find([Query("bb", 6)]) == [[1, 2, 3]]
    passages = (Passage("p0", "d", ""), Passage("p1", "", "dc"), Passage("p2", "", "c"))
    assert built(mdr(first_hop=1), tmp_path, passages).find([Query("d", 3)]) == [[0, 1]]


def test_a_pair_scores_the_product_or_the_sum() -> None:
    assert mdr(score="product")._pair_score(0.5, 0.4) == pytest.approx(0.2)
    assert mdr(score="sum")._pair_score(0.5, 0.4) == pytest.approx(0.9)
    assert mdr(score="product")._pair_score(-0.9, -0.9) == 0
    with pytest.raises(
        ConfigError, match=r"retriever\.dense: Tfidf has no embeddings. Choose a dense one"
    ):
        mdr(dense=Tfidf(("title", "text"), fill=False, ties="first"))


@pytest.mark.parametrize(
    "combine", [lambda left, right: Hybrid(left, right, 60, 10), Knn], ids=["hybrid", "knn"]
)
def test_parts_of_a_retriever_decide_its_identity(
    combine: Callable[[Any, Any], Any], tmp_path: Path
) -> None:
    left, right = Ranked((0, 1)), Ranked((1, 0))
    built(combine(left, right), tmp_path).close()
    assert len(list(tmp_path.glob("*/built"))) == 2
    identity = identity_of(combine(left, right))
    assert json.loads(json.dumps(identity)) == identity
    assert identity_of(combine(Ranked((0, 2)), right)) != identity
    assert identity_of(combine(left, Ranked((2, 0)))) != identity
    assert combine(left, right).pools
    assert not combine(left, NoPools((1, 0))).pools
