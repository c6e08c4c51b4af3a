"""The notes of a method that kgqa shows: chains, reasoning and traversals."""

from __future__ import annotations

from typing import Annotated

from annotated_types import MinLen

from kgqa.artifacts.schema import Artifact, Number, check_json
from kgqa.artifacts.trace import TracedQuestion

Path = Annotated[tuple[str, ...], MinLen(1)]


class Chain(Artifact):
    """A reasoning chain. `triples`: the parts of each, and the passage it is from."""

    score: Number
    ended: bool
    triples: tuple[Path, ...]


class Step(Artifact):
    """A step of a traversal. `path`: where it started."""

    path: Path
    neighbours: int
    evidence: str | None
    chosen: tuple[str, ...]


class Traversal(Artifact):
    """A traversal of a passage graph. Passages are given by their ids."""

    agent: str
    seeds: tuple[str, ...]
    steps: tuple[Step, ...]
    paths: tuple[tuple[str, ...], ...]


class Notes(Artifact):
    """The notes of one question. Others are not shown."""

    chains: tuple[Chain, ...] = ()
    thoughts: tuple[str, ...] = ()
    traversal: Traversal | None = None

    @classmethod
    def of(cls, traced: TracedQuestion) -> Notes:
        """Read the notes of a question. Raises DataError if one has another shape."""
        return check_json(Notes, traced.notes, f"question {traced.question.id}: its notes")
