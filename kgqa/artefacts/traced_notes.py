"""What a method noted of a question as far as kgqa shows it: each note in the shape that is drawn, or refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import MinLen

from kgqa.artefacts.form import Number, checked
from kgqa.artefacts.trace import TracedQuestion


@dataclass(frozen=True, slots=True)
class Chain:
    """`triples`: the parts of each, and the passage it is from."""

    score: Number
    ended: bool
    triples: tuple[Annotated[tuple[str, ...], MinLen(1)], ...]


@dataclass(frozen=True, slots=True)
class Step:
    """`path`: where the step was taken from."""

    path: Annotated[tuple[str, ...], MinLen(1)]
    neighbours: int
    evidence: str | None
    chosen: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Traversal:
    """Passages by their ids."""

    agent: str
    seeds: tuple[str, ...]
    steps: tuple[Step, ...]
    paths: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Notes:
    """Those of other names are not shown."""

    chains: tuple[Chain, ...] = ()
    thoughts: tuple[str, ...] = ()
    traversal: Traversal | None = None

    @classmethod
    def of(cls, traced: TracedQuestion) -> Notes:
        """Raises DataError: a note is of another shape."""
        return checked(Notes, traced.notes, f"question {traced.question.id}: its notes")
