"""Examples to train models on, as `kgqa collect` keeps them: `examples.jsonl` and, with the reason, `dropped.jsonl`.

An example of a role that writes has its prompt as messages, so that any engine renders it as it does when it answers;
one of an encoder has texts. The fields are the keys of a line, in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from kgqa.artefacts.form import as_json, checked, read_lines
from kgqa.types import Json, Prompt, Question

EXAMPLES = "examples.jsonl"
DROPPED = "dropped.jsonl"
_REMEDY = "run the kgqa collect that made it again"


@dataclass(frozen=True, slots=True)
class Origin:
    """dataset: as it is chosen. place: the step, hop or iteration, from 1. made_by: "rules", "gold" or a run's name."""

    dataset: str
    place: int
    made_by: str


@dataclass(frozen=True, slots=True)
class Example:
    """What a role is asked and what it shall write, without blanks around it."""

    id: str  # like no other's of the file
    question: str  # its id
    role: str
    prompt: Prompt
    target: str
    label: str  # what it shows: an error type, "exploration", "fact"
    origin: Origin


@dataclass(frozen=True, slots=True)
class Positive:
    """What an encoder shall bring together, and what of the same question it shall not."""

    id: str
    question: str  # no positive of the same question is a negative of this one
    anchor: str
    positive: str
    negatives: tuple[str, ...]
    label: str  # "hop 1", "support"
    origin: Origin


@dataclass(frozen=True, slots=True)
class Dropped:
    """What gave no example."""

    question: str
    what: str  # the whole question, or which of its parts
    why: str
    origin: Origin


Made = Example | Positive | Dropped


def line(made: Made) -> dict[str, Json]:
    """As it stands in its file."""
    written: dict[str, Json] = as_json(made)
    return written


def read_examples(file: Path) -> Iterator[Example | Positive]:
    """Raises DataError: the file cannot be read, or a line is no example; the line and key are named."""
    for place, record in read_lines(file, _REMEDY):
        kind: type[Example | Positive] = Positive if isinstance(record, dict) and "anchor" in record else Example
        yield checked(kind, record, place, _REMEDY)


def read_dropped(file: Path) -> Iterator[Dropped]:
    """Raises DataError as `read_examples`."""
    return (checked(Dropped, record, place, _REMEDY) for place, record in read_lines(file, _REMEDY))


@dataclass(frozen=True, slots=True)
class Source:
    """What examples are made of: a data set's questions, or those that a finished run answered.

    method: as the configuration has it, since examples are asked with its prompts; of a run as it was then, None where
    the recipe takes runs alone, whose traces have the prompts.
    noise: questions that `kgqa verify` flagged, where the recipe asks for such.
    """

    dataset: str
    questions: Sequence[Question]
    method: object | None
    run: Path | None = None
    noise: Sequence[Question] = ()


class Recipe(Protocol):
    """How examples to train a model on are made: `kgqa collect NAME`."""

    @property
    def sources(self) -> Mapping[str, str]:
        """The split of each data set that is taken where none is named; empty: it takes finished runs."""
        ...

    @property
    def held_out(self) -> float:
        """The share of the questions whose examples nobody is trained on."""
        ...

    @property
    def seed(self) -> int: ...

    def collect(self, sources: Sequence[Source], advance: Callable[[], None]) -> Iterator[Made]:
        """In an order that depends on the sources and the settings alone; `advance()` after each question.

        Raises:
            ConfigError: the sources are not of the kind that it takes.
        """
        ...


@runtime_checkable
class Measuring(Protocol):
    """A recipe with figures of its own for the report."""

    def figures(self, sources: Sequence[Source]) -> Mapping[str, int | float]: ...


# programs (`kgqa.calls.Program`) by key; gives each key's result, or why it taught nothing
Asking = Callable[[Sequence[tuple[str, Coroutine[Any, Any, Any]]]], Mapping[str, object]]


class NotTaught(Exception):
    """Why a teacher's program taught nothing."""


@runtime_checkable
class Taught(Protocol):
    """A recipe that may ask a teacher, the model of the role `teacher`."""

    @property
    def asks(self) -> bool:
        """Whether it does; else it is collected as any other."""
        ...

    @property
    def hard_cases(self) -> int:
        """How many it makes at most of finished runs, which it takes beside questions; 0: it takes none."""
        ...

    @property
    def noise(self) -> int:
        """How many examples of questions that were flagged it adds; 0: none."""
        ...

    def taught(self, sources: Sequence[Source], ask: Asking) -> Iterator[Made]:
        """As `collect`; it gives `ask` all programs at once."""
        ...
