"""Searching in a question's own passages needs no corpus; an opened corpus says what it holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgqa.calls import Search
from kgqa.retrieval.bm25 import Bm25
from kgqa.retrieval.index import IndexFolder
from kgqa.retrieval.search import PoolIndex
from kgqa.types import Passage

pytest.importorskip("tantivy")

BM25 = Bm25({"title": 1.0, "text": 1.0})
ALDER, BIRCH = Passage.of("Alder", "Alder wrote a book."), Passage.of("Birch", "Birch is a river.")


def test_a_pool_is_searched_without_a_corpus() -> None:
    index = PoolIndex(BM25)
    calls = [Search("river", 5, pool=(ALDER, BIRCH)), Search("river", 5, pool=()), Search("book", 1, pool=(ALDER,))]
    assert index.search(calls) == [(BIRCH,), (), (ALDER,)]
    assert index.find_titled("Alder") == ()
    assert index.identity() == {"retriever": BM25.identity(), "corpus": None}
    index.close()


def test_an_index_has_the_passages_of_its_corpus_by_title(tmp_path: Path) -> None:
    folder = IndexFolder(tmp_path / "index", BM25, {"corpus": ["x"]}, "kgqa data index")
    further = Passage.of("alder", "Alder wrote another book.")
    folder.build([ALDER, BIRCH, further], lambda *_: None)
    index = folder.open()
    assert index.find_titled("Alder") == [ALDER, further]
    assert index.find_titled("Cedar") == []
    index.close()
