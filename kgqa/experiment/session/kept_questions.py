"""A run's questions in memory, packed: one has twenty passages, and of ten thousand few are in work at once."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from kgqa.types import Passage, Question

_LEVEL = 1  # of zstandard: a third of the size, 0.1 ms a question


class KeptQuestions(Sequence[Question]):
    """In their order. Each look at one unpacks it anew, so equal questions are not the same object.

    Questions that have one collection in common, such as a folder's documents, keep it as the one object it is.
    """

    def __init__(self, questions: Iterable[Question]) -> None:
        self.ids: list[str] = []
        self._kept: list[bytes | Question] = []
        passages: tuple[Passage, ...] = ()
        for question in questions:
            in_common = question.passages is passages
            passages = question.passages
            self.ids.append(question.id)
            self._kept.append(question if in_common else _packed(question))

    def only(self, places: Iterable[int]) -> KeptQuestions:
        """Those at these places, in the order given."""
        few = KeptQuestions(())
        for place in places:
            few.ids.append(self.ids[place])
            few._kept.append(self._kept[place])
        return few

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Question]:
        return map(_unpacked, self._kept)

    @overload
    def __getitem__(self, place: int) -> Question: ...
    @overload
    def __getitem__(self, place: slice) -> KeptQuestions: ...
    def __getitem__(self, place: int | slice) -> Question | KeptQuestions:
        if isinstance(place, slice):
            return self.only(range(*place.indices(len(self))))
        return _unpacked(self._kept[place])


def _packed(question: Question) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=_LEVEL).compress(pickle.dumps(question, pickle.HIGHEST_PROTOCOL))


def _unpacked(kept: bytes | Question) -> Question:
    import zstandard

    if isinstance(kept, Question):
        return kept
    question: Question = pickle.loads(zstandard.ZstdDecompressor().decompress(kept))  # noqa: S301 - ours
    return question
