"""The order in which examples are trained on: from the seed and their ids, whatever file they stood in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from kgqa.storage import text_digest
from kgqa.training.schedule import Schedule


class Item(Protocol):
    """An example as its library has it."""

    @property
    def id(self) -> str: ...

    @property
    def length(self) -> int:
        """Tokens."""
        ...


class Order:
    """The examples of an epoch: drawn from the seed, the epoch and their ids, whatever file they stood in.

    alike: examples of like length stand together within stretches of 50 batches, so that little is padded.
    """

    def __init__(self, ids: Sequence[str], lengths: Sequence[int], schedule: Schedule, alike: bool) -> None:
        self._ids, self._lengths, self._seed = ids, lengths, schedule.seed
        self._stretch = 50 * schedule.batch if alike else 0
        self._batch = schedule.batch
        self.epoch = 0

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[int]:
        drawn = self._drawn(range(len(self._ids)), "")
        if not self._stretch:
            return iter(drawn)
        batches = []
        for first in range(0, len(drawn), self._stretch):
            stretch = sorted(drawn[first : first + self._stretch], key=lambda place: -self._lengths[place])
            batches += [stretch[at : at + self._batch] for at in range(0, len(stretch), self._batch)]
        whole, rest = [each for each in batches if len(each) == self._batch], batches[-1]
        named = self._drawn(range(len(whole)), "batch ")
        ordered = [place for batch in named for place in whole[batch]]
        return iter(ordered + (rest if len(rest) < self._batch else []))

    def _drawn(self, places: range, what: str) -> list[int]:
        def key(place: int) -> str:
            return text_digest(f"{self._seed} {self.epoch} {what}{place if what else self._ids[place]}")

        return sorted(places, key=key)
