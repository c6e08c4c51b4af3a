"""RAPTOR: the tree of summaries, and searches of its nodes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Literal

import pytest

from kgqa.calls import Call, Generate, Search
from kgqa.errors import ConfigError, DataError, EngineError
from kgqa.identity.component import identity_of
from kgqa.retrieval.composite import Hybrid
from kgqa.retrieval.index import IndexFolder
from kgqa.retrieval.raptor import PLANNED_SIZE, TREE, Raptor
from kgqa.retrieval.search import PoolIndex
from kgqa.testing import drive
from kgqa.types import Completion, Passage
from tests.retrieval.conftest import KINDS, PASSAGES, PLACES, built, find, retriever_of
from tests.retrieval.word_vectors import Words

SIZE = len(KINDS)


class Clustered(Raptor):
    """A RAPTOR with as many texts in each cluster as there are kinds, in their order."""

    def cluster(self, texts: Sequence[Passage]) -> list[list[int]]:
        return [
            list(range(start, min(start + SIZE, len(texts))))
            for start in range(0, len(texts), SIZE)
        ]


@pytest.fixture
def raptor() -> Raptor:
    retriever = retriever_of("retriever=raptor", "retriever.dimensions=3")
    assert isinstance(retriever, Raptor)
    values = {**vars(retriever), "nodes": replace(retriever.nodes, encoder=Words())}
    return Clustered(**values)


def summarize(call: Call[Any]) -> Completion:
    """Return the first lines of the texts."""
    assert isinstance(call, Generate)
    assert call.role == "summarizer"
    _, *texts = call.prompt.messages[0].content.split("\n\n")
    return Completion(
        " and ".join(text.splitlines()[0] for text in texts) if len(texts) < SIZE else texts[0]
    )


def expand(
    raptor: Raptor, folder: Path, reply: Callable[[Call[Any]], Any] = summarize
) -> list[Passage]:
    folder.mkdir(exist_ok=True)
    return list(drive(raptor.expand(PASSAGES, folder, lambda _: None), reply))


def test_each_layer_has_one_summary_per_cluster(raptor: Raptor, tmp_path: Path) -> None:
    summaries = expand(raptor, tmp_path)
    assert [summary.title for summary in summaries[: len(PLACES)]] == [
        f"Summary of {SIZE} texts"
    ] * len(PLACES)
    # 8 summaries are 2 clusters, and 2 are no more than 3 dimensions
    assert len(summaries) == len(PLACES) + 2
    tree = json.loads((tmp_path / TREE).read_bytes())
    assert tree["top"] == [48, 49]
    assert dict(map(tuple, tree["children"]))[48] == [40, 41, 42, 43, 44]
    assert dict(map(tuple, tree["children"]))[41] == [5, 6, 7, 8, 9]
    (summary,) = expand(
        raptor, tmp_path, lambda _: Completion("They are places.")
    )  # equal ones are one node
    assert summary.text == "They are places."
    tree = json.loads((tmp_path / TREE).read_bytes())
    assert (tree["top"], tree["children"]) == ([40], [[40, list(range(40))]])
    raptor.nodes.encoder.encoded.clear()  # type: ignore[union-attr]
    asked = count()
    drive(
        raptor.expand(PASSAGES, None, lambda _: None),
        lambda call: Completion(f"summary {next(asked)}"),
    )
    first = -(-len(PASSAGES) // PLANNED_SIZE)
    assert next(asked) == first + -(-first // PLANNED_SIZE)
    assert not raptor.nodes.encoder.encoded  # type: ignore[union-attr]


@pytest.fixture
def nodes(raptor: Raptor, tmp_path: Path) -> list[Passage]:
    return [*PASSAGES, *expand(raptor, tmp_path / "index")]


def test_rejected_cluster_has_no_summary(raptor: Raptor, tmp_path: Path) -> None:
    def reply(call: Call[Any]) -> Any:
        text = call.prompt.messages[0].content  # type: ignore[attr-defined]  # a Generate
        return EngineError("filtered") if PASSAGES[0].text in text else summarize(call)

    summaries = expand(raptor, tmp_path, reply)
    assert [summary.title for summary in summaries[: len(PLACES) - 1]] == [
        f"Summary of {SIZE} texts"
    ] * (len(PLACES) - 1)
    tree = json.loads((tmp_path / TREE).read_bytes())
    reached, layer = set[int](), set(tree["top"])
    while layer:
        reached |= layer
        layer = {
            child for node, children in tree["children"] if node in layer for child in children
        } - reached
    assert reached >= set(range(len(PASSAGES)))
    assert raptor.count_lacks(PASSAGES, tmp_path) == {"failed": tree["failed"]}
    assert tree["failed"] > 0


def test_lone_surrogate_in_a_summary_is_replaced(raptor: Raptor, tmp_path: Path) -> None:
    (summary,) = expand(raptor, tmp_path, lambda _: Completion("They are \ud83d places."))
    assert summary.text == "They are ? places."


def test_search_fills_its_token_budget(
    raptor: Raptor, nodes: list[Passage], tmp_path: Path
) -> None:
    finder = built(raptor, nodes, tmp_path / "index")
    assert set(find(finder, nodes[42].wording, 60)) == set(range(len(nodes)))
    assert find(finder, "Summary of 5 texts", 1)[0] >= len(PASSAGES)
    assert find(finder, nodes[42].wording, 3, (1, 2)) == find(finder, nodes[42].wording, 2, (1, 2))

    def length(max_tokens: int | None) -> int:
        finder = replace(raptor, max_tokens=max_tokens).open(nodes, tmp_path / "index")
        return len(find(finder, nodes[7].wording, 20))

    assert (length(None), length(1)) == (20, 1)
    assert 1 < length(100) < 20
    finder = replace(raptor, strategy="tree", nodes_per_layer=1).open(nodes, tmp_path / "index")
    places = find(finder, nodes[7].wording, 20)
    # a traversal selects of each layer the best node, and its best child
    assert len(places) == 3
    top, middle, leaf = sorted(places, reverse=True)
    children = finder.data[1]
    assert top in (48, 49)
    assert middle in children[top]
    assert leaf in children[middle]


def test_index_has_summaries_after_passages(raptor: Raptor, tmp_path: Path) -> None:
    folder = IndexFolder(tmp_path / "index", raptor, {"file": "hash"}, "kgqa data index dataset=d")
    stages: list[str] = []

    def fail(_: Call[Any]) -> Any:
        return EngineError("lost")

    with pytest.raises(EngineError, match="lost"):
        folder.build(PASSAGES, lambda *_: None, lambda program: drive(program, fail))
    with pytest.raises(DataError, match="no finished index"):
        folder.open()
    manifest = folder.build(
        (*PASSAGES, PASSAGES[0]),
        lambda stage, *_: stages.append(stage),
        lambda program: drive(program, summarize),
    )
    assert (
        manifest["corpus"]["count"],
        manifest["corpus"]["added"],
        manifest["corpus"]["duplicates"],
    ) == (50, 10, 1)
    assert "writing" in stages
    with closing(folder.open()) as index:
        (passages,) = index.search([Search("Summary of 5 texts", 50)])
        assert {passage.title for passage in passages} >= {"Summary of 5 texts", "Halverby choir"}
        assert len(index.find_titled("Halverby choir")) == 1


@pytest.mark.parametrize(
    ("node", "leaves"),
    [(3, []), (41, [5, 6, 7, 8, 9]), (48, list(range(25)))],
    ids=["passage", "summary", "top"],
)
def test_leaves_of_a_summary_are_passages(
    raptor: Raptor, nodes: list[Passage], tmp_path: Path, node: int, leaves: list[int]
) -> None:
    finder: Any = built(raptor, nodes, tmp_path / "index")
    assert finder.find_leaves([nodes[node].id]) == [nodes[leaf] for leaf in leaves]


def test_identity_and_what_raptor_cannot_be(raptor: Raptor) -> None:
    assert identity_of(raptor) == json.loads(json.dumps(identity_of(raptor)))
    assert identity_of(raptor) != identity_of(replace(raptor, summary_tokens=50))
    bm25 = retriever_of("retriever=bm25")
    with pytest.raises(ConfigError, match=r"retriever\.dense: Clustered calls a model"):
        Hybrid(bm25, raptor, constant=60, depth=10)
    with pytest.raises(ConfigError, match=r"retriever\.nodes: Bm25 has no embeddings"):
        replace(raptor, nodes=bm25)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="cannot search a question's own passages"):
        PoolIndex(raptor).search([Search("choir", 2, pool=PASSAGES)])


@pytest.mark.parametrize("reduction", ["pca", "umap"])
def test_texts_with_other_words_are_in_other_clusters(
    raptor: Raptor, reduction: Literal["pca", "umap"]
) -> None:
    for package in ("sklearn", "umap")[: 1 + (reduction == "umap")]:
        pytest.importorskip(
            package, reason=f"RAPTOR's clusters need {package}", exc_type=ImportError
        )
    texts = [
        Passage.of(f"{number} {kind}", f"{kind} " * 20)
        for kind in ("slate", "choir")
        for number in range(20)
    ]
    raptor = replace(raptor, reduction=reduction)
    clusters = Raptor.cluster(raptor, texts)
    assert all(len({at // 20 for at in cluster}) == 1 for cluster in clusters)
    assert clusters == Raptor.cluster(raptor, texts)


@pytest.mark.parametrize("max_clusters", [1, 50])
def test_clusters_share_words_and_long_ones_are_split(raptor: Raptor, max_clusters: int) -> None:
    pytest.importorskip(
        "sklearn", reason="RAPTOR's clusters need scikit-learn", exc_type=ImportError
    )
    texts = [
        Passage.of(f"{number} {kind}", f"{kind} " * 20)
        for kind in ("slate", "choir")
        for number in range(20)
    ]
    clusters = Raptor.cluster(raptor, texts)
    assert {at for cluster in clusters for at in cluster} == set(range(40))
    assert all(len({at // 20 for at in cluster}) == 1 for cluster in clusters)
    assert clusters == Raptor.cluster(raptor, texts)
    texts = [Passage.of("slate", f"slate {number % 2} " * 20) for number in range(30)]
    clusters = Raptor.cluster(
        replace(raptor, max_cluster_tokens=200, max_clusters=max_clusters), texts
    )
    assert max(map(len, clusters)) <= 5  # of 46 tokens
    assert {at for cluster in clusters for at in cluster} == set(range(30))
