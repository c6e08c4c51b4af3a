"""Passage graphs: one that grew equals one built anew."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgqa.errors import DataError
from kgqa.retrieval.graphs.growing import growing
from kgqa.retrieval.graphs.unlinked import NoGraph
from kgqa.types import Passage
from tests.retrieval.linked_passages import GRAPHS, WORDS, neighbours

TEXT = st.lists(st.sampled_from(WORDS), min_size=1, max_size=9).map(" ".join)
DOCUMENTS = st.dictionaries(st.sampled_from("ABCDEFG"), st.lists(TEXT, min_size=1, max_size=3, unique=True), min_size=2)


@settings(max_examples=60, deadline=None)
@given(documents=DOCUMENTS, chance=st.randoms(use_true_random=False), which=st.integers(0, len(GRAPHS) - 1))
def test_a_graph_that_grew_and_shrank_equals_one_built_anew(
    documents: dict[str, list[str]], chance: Any, which: int
) -> None:
    graph: Any = GRAPHS[which]
    if isinstance(graph, NoGraph):
        return
    grown, held = growing(graph), dict[str, list[Passage]]()
    for _ in range(3):
        for title, texts in documents.items():
            if title in held and chance.random() < 0.5:
                grown.remove(title)
                del held[title]
            elif title not in held:
                held[title] = [Passage.of(title, text) for text in texts]
                grown.add(held[title])
        anew = [passage for document in held.values() for passage in document]
        assert list(grown.passages) == anew
        assert neighbours(grown.links()) == neighbours(graph.links(anew))


@pytest.mark.parametrize("graph", GRAPHS[:4], ids=lambda graph: type(graph).__name__)
def test_a_document_is_added_once_and_removed_where_it_is(graph: Any) -> None:
    grown = growing(graph)
    grown.add([Passage.of("A", "harbour")])
    with pytest.raises(DataError, match="'A': there is a document of this title already"):
        grown.add([Passage.of("A", "lantern")])
    with pytest.raises(DataError, match="'B': no document of this title"):
        grown.remove("B")
    with pytest.raises(DataError, match="a document has one title, these passages have 2"):
        grown.add([Passage.of("B", "x"), Passage.of("C", "y")])
