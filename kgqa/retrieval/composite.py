"""Retrievers made of others: where each keeps its index, and what identifies them together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kgqa.protocols import Finder, KeptElsewhere, Retriever
from kgqa.types import Json, Passage
from kgqa.util.fs import ensure_dir, explain_storage_errors


@dataclass(frozen=True)
class Parts:
    """Named retrievers over the same passages, each in the subfolder of its name."""

    retrievers: Mapping[str, Retriever]

    @property
    def pools(self) -> bool:
        return all(retriever.pools for retriever in self.retrievers.values())

    def identity(self) -> dict[str, Json]:
        return {name: dict(retriever.identity()) for name, retriever in self.retrievers.items()}

    def build(self, passages: Sequence[Passage], folder: Path, advance: Callable[[int], None]) -> None:
        """One after the other; a passage counts when all have it."""
        progress = _Progress(len(self.retrievers), advance)
        for name, retriever in self.retrievers.items():
            with explain_storage_errors(folder / name):
                ensure_dir(folder / name)
            retriever.build(passages, folder / name, progress)

    def restore(self, passages: Sequence[Passage], folder: Path, advance: Callable[[int], None]) -> None:
        for name, retriever in self.retrievers.items():
            if isinstance(retriever, KeptElsewhere):
                retriever.restore(passages, folder / name, advance)

    def open(self, passages: Sequence[Passage], folder: Path) -> dict[str, Finder]:
        return {name: retriever.open(passages, folder / name) for name, retriever in self.retrievers.items()}


@dataclass
class _Progress:
    """Passages of all parts, handed on divided by the number of parts."""

    parts: int
    advance: Callable[[int], None]
    counted: int = 0

    def __call__(self, count: int) -> None:
        before = self.counted // self.parts
        self.counted += count
        self.advance(self.counted // self.parts - before)
