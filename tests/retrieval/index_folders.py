"""An index folder of BM25 over the test passages, opened and asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from kgqa.calls import Search
from kgqa.protocols import Finder, Retriever
from kgqa.retrieval.index import IndexFolder
from kgqa.retrieval.search import PassageIndex
from kgqa.types import Json, Passage
from tests.retrieval.conftest import PASSAGES

QUERY = "Which railway carried slate to the harbour of Ostrand?"


def silent(stage: str, count: int, total: int | None) -> None:
    """Progress that nobody watches."""


def opened(folder: IndexFolder, passages: Sequence[Passage] = PASSAGES) -> closing[PassageIndex]:
    folder.build(iter(passages), silent)
    return closing(folder.open())


def titles(index: PassageIndex, *calls: Search) -> list[list[str]]:
    return [[passage.title for passage in found] for found in index.search(calls)]


class Stopping:
    """BM25 whose build dies after the passages are stored; remembers whether it was asked."""

    pools = True

    def __init__(self, real: Retriever) -> None:
        self.real, self.asked, self.dies = real, 0, True

    def identity(self) -> Mapping[str, Json]:
        return self.real.identity()

    def build(self, passages: Sequence[Passage], folder: Path, advance: Any) -> None:
        self.asked += 1
        if self.dies:
            (folder / "half-built").write_text("junk")
            raise KeyboardInterrupt
        self.real.build(passages, folder, advance)

    def open(self, passages: Sequence[Passage], folder: Path) -> Finder:
        return self.real.open(passages, folder)
