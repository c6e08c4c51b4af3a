"""A run's questions and predictions in memory, packed: of ten thousand few are in work at once."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

from kgqa.artefacts.predictions import Prediction
from kgqa.types import Passage, Question

_LEVEL = 1  # of zstandard: a third of the size, 0.1 ms a question


class KeptQuestions(Sequence[Question]):
    """In their order. Each look at one, with its twenty passages, unpacks it anew: equal ones are not the same object.

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
        question: Question = _unpacked(self._kept[place])
        return question


class KeptPredictions(Mapping[str, Prediction]):
    """By question, in the order in which they came. Each look at one unpacks it anew."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    def keep(self, prediction: Prediction) -> None:
        self._kept[prediction.question_id] = _packed(prediction)

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __getitem__(self, question_id: str) -> Prediction:
        prediction: Prediction = _unpacked(self._kept[question_id])
        return prediction


def _packed(kept: Question | Prediction) -> bytes:
    import zstandard

    packed = zstandard.ZstdCompressor(level=_LEVEL).compress(pickle.dumps(kept, pickle.HIGHEST_PROTOCOL))
    return bytes(memoryview(packed))  # a copy: what zstandard gives holds on to the room of the worst case


def _unpacked(kept: bytes | Question) -> Any:
    import zstandard

    if isinstance(kept, Question):
        return kept
    return pickle.loads(zstandard.ZstdDecompressor().decompress(kept))  # noqa: S301 - ours
