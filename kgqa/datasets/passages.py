"""Yield passages once, without a list of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kgqa.types import Passage, Question


def distinct(passages: Iterable[Passage]) -> Iterator[Passage]:
    """Yield each passage once, at its first position."""
    # hashes need less memory than ids: 0.5 GB for five million passages
    hashes: set[int] = set()
    for passage in passages:
        number = hash(passage.id)
        if number not in hashes:
            hashes.add(number)
            yield passage


def distinct_passages(questions: Iterable[Question]) -> Iterator[Passage]:
    """Yield each passage once. Those of ten thousand questions are too many for a list."""
    return distinct(passage for question in questions for passage in question.passages)
