"""Examples to train models on, as `kgqa collect` keeps them: `examples.jsonl` and, with the reason, `dropped.jsonl`.

An example of a role that writes has its prompt as messages, so that any engine renders it as it does when it answers;
one of an encoder has texts. The fields are the keys of a line, in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from kgqa.artifacts.schema import as_json, check_json, read_lines
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
    """A prompt for a role and its target, without spaces around it."""

    id: str  # like no other's of the file
    question: str  # its id
    role: str
    prompt: Prompt
    target: str
    label: str  # what it shows: an error type, "exploration", "fact"
    origin: Origin


@dataclass(frozen=True, slots=True)
class Positive:
    """A positive pair for an encoder, with negatives of the same question."""

    id: str
    question: str  # no positive of the same question is a negative of this one
    anchor: str
    positive: str
    negatives: tuple[str, ...]
    label: str  # "hop 1", "support"
    origin: Origin


@dataclass(frozen=True, slots=True)
class Dropped:
    """A question, or a part of it, that gave no example."""

    question: str
    what: str  # the whole question, or which of its parts
    why: str
    origin: Origin


Made = Example | Positive | Dropped


def line(made: Made) -> dict[str, Json]:
    """Return the line of the file."""
    written: dict[str, Json] = as_json(made)
    return written


def read_examples(file: Path) -> Iterator[Example | Positive]:
    """Yield the examples. Raises DataError if a line is not an example; the message names line and key."""
    for place, record in read_lines(file, _REMEDY):
        kind: type[Example | Positive] = Positive if isinstance(record, dict) and "anchor" in record else Example
        yield check_json(kind, record, place, _REMEDY)


def read_dropped(file: Path) -> Iterator[Dropped]:
    """Yield the dropped ones. Raises DataError as `read_examples`."""
    return (check_json(Dropped, record, place, _REMEDY) for place, record in read_lines(file, _REMEDY))


@dataclass(frozen=True, slots=True)
class Source:
    """The source of examples: a dataset's questions, or those of a finished run.

    method: as the configuration has it, since examples are asked with its prompts; of a run as it was then, None where
    the recipe takes runs alone, whose traces have the prompts.
    noise: questions that `kgqa data verify` flagged, where the recipe asks for such.
    """

    dataset: str
    questions: Sequence[Question]
    method: object | None
    run: Path | None = None
    noise: Sequence[Question] = ()


class Recipe(Protocol):
    """A way to make training examples: `kgqa collect NAME`."""

    @property
    def sources(self) -> Mapping[str, str]:
        """Return the default split of each dataset; empty: the recipe uses finished runs."""
        ...

    @property
    def held_out(self) -> float:
        """Return the share of questions for evaluation, which are not in the training examples."""
        ...

    @property
    def seed(self) -> int: ...

    def collect(self, sources: Sequence[Source], advance: Callable[[], None]) -> Iterator[Made]:
        """Yield examples in an order that only depends on sources and settings; call `advance()` after each question.

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
    """A teacher's program gave no example; the message is the reason."""


@runtime_checkable
class Taught(Protocol):
    """A recipe that may ask a teacher, the model of the role `teacher`."""

    @property
    def asks(self) -> bool:
        """Return whether it calls a teacher. Otherwise it is collected as any other."""
        ...

    @property
    def hard_cases(self) -> int:
        """Return the maximum number of examples from finished runs, in addition to questions (0: none)."""
        ...

    @property
    def noise(self) -> int:
        """Return the number of added examples from flagged questions (0: none)."""
        ...

    def taught(self, sources: Sequence[Source], ask: Asking) -> Iterator[Made]:
        """Yield examples as `collect`. All programs are passed to `ask` at once."""
        ...
