"""Labeled examples for in-context learning: documents with their triples, questions with their chains or thoughts.

`kgqa.datasets.demonstrations` reads them from files. Triples of documents and chains are the text that prompts show.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, TypeVar

from kgqa.calls import rank
from kgqa.errors import ConfigError
from kgqa.types import Passage, Triple

Mode = Literal["adaptive", "fixed", "none"]
# questions of each of the three sets of IRCoT's authors: §4.1, and their program's `run.py`
RELEASED_SET = 15


@dataclass(frozen=True, slots=True)
class DocumentDemonstration:
    """A document with all its triples."""

    title: str
    text: str
    triples: tuple[str, ...]

    @property
    def topic(self) -> str:
        """Return the text that is compared with a query."""
        return f"{self.title}: {self.text}"


@dataclass(frozen=True, slots=True)
class Selection:
    """One step of a labeled chain: the candidates, and the one that continues the chain."""

    candidates: tuple[str, ...]
    choice: int | None  # None: the chain is complete


@dataclass(frozen=True, slots=True)
class ChainDemonstration:
    """A question and the selections that build its chain. Only the last one can stop."""

    question: str
    selections: tuple[Selection, ...]

    @property
    def topic(self) -> str:
        return self.question

    @property
    def chain(self) -> tuple[str, ...]:
        return tuple(
            step.candidates[step.choice] for step in self.selections if step.choice is not None
        )


class Entity(NamedTuple):
    name: str
    type: str

    def __str__(self) -> str:
        return f"{self.name} ({self.type})"


@dataclass(frozen=True, slots=True)
class SubQuestion:
    """A step of a question's decomposition: the triple of a passage whose tail answers it."""

    question: str
    triple: Triple
    passage: Passage

    @property
    def answer(self) -> str:
        return self.triple.tail


@dataclass(frozen=True, slots=True)
class ThoughtDemonstration:
    """A question of a pool with its chain of thought, the passages that support it, and their triples.

    `contexts[m]` are the passages with m distractors among them, in the order of the prompt. Questions of the papers'
    authors have no `steps`, `triples`, `implied` and `entities`.
    """

    question: str
    answer: str
    # one line, which ends with "the answer is: …"
    thoughts: str
    contexts: tuple[tuple[Passage, ...], ...]
    # IIRC's main passage, which is in the contexts too
    pinned: tuple[Passage, ...] = ()
    # of the other pages that support the chain
    titles: tuple[str, ...] = ()
    # each after those that it needs
    steps: tuple[SubQuestion, ...] = ()
    # of the passages of `contexts[0]`, in their order
    triples: tuple[Triple, ...] = ()
    implied: tuple[Triple, ...] = ()  # inferred from these
    entities: tuple[Entity, ...] = ()  # of these
    # in the authors' sets, by the set's number
    places: Mapping[int, int] = field(default_factory=dict, hash=False)

    def context(self, distractors: int) -> tuple[Passage, ...]:
        """Return the context with up to this number of distractors."""
        return self.contexts[min(distractors, len(self.contexts) - 1)]


class Demonstration(Protocol):
    @property
    def topic(self) -> str: ...


D = TypeVar("D", bound=Demonstration)
T = TypeVar("T")


async def choose_demonstrations(
    labelled: Sequence[D], mode: Mode, count: int, query: str
) -> tuple[D, ...]:
    """Return the `count` few-shot examples to show.

    `adaptive`: the nearest to the query, nearest first, ties in the order of the file. `fixed`: the first of the file.
    """
    if mode == "none" or not labelled or not count:
        return ()
    if mode == "fixed":
        return tuple(labelled[:count])
    nearest = await rank(
        query, labelled, lambda demonstration: demonstration.topic, "demonstrations_ranker"
    )
    return tuple(demonstration for _, demonstration in nearest[:count])


def demonstration_set(
    labelled: Sequence[ThoughtDemonstration], number: int, count: int
) -> tuple[ThoughtDemonstration, ...]:
    """Return up to `count` questions: the `number`-th random sample, or the authors' set of this number, in its order.

    Raises ConfigError: the authors have no set of this number.
    """
    if released := _load_released_set(labelled, number):
        return released[:count]
    sample = shuffle_examples(
        labelled, f"set {number}", lambda demonstration: demonstration.question
    )[:count]
    return tuple(demonstration for demonstration in labelled if demonstration in sample)


def describe_set(labelled: Sequence[ThoughtDemonstration], number: int, count: int) -> str:
    """Describe the questions of `demonstration_set` for a report."""
    size = len(demonstration_set(labelled, number, count))
    if not (released := _load_released_set(labelled, number)):
        return f"{size} of {len(labelled)} questions, random set {number}"
    text = f"{size} of the {RELEASED_SET} questions of the authors' set {number}"
    return (
        text if len(released) == RELEASED_SET else f"{text}, {len(released)} of which the file has"
    )


def _load_released_set(
    labelled: Sequence[ThoughtDemonstration], number: int
) -> tuple[ThoughtDemonstration, ...]:
    """Return the authors' set of few-shot examples, or none for other questions."""
    places = {place for demonstration in labelled for place in demonstration.places}
    if places and number not in places:
        raise ConfigError(
            f"method.demonstration_set={number}: the authors have sets 1 to {max(places)}"
        )
    placed = (demonstration for demonstration in labelled if number in demonstration.places)
    return tuple(sorted(placed, key=lambda demonstration: demonstration.places[number]))


def shuffle_examples(values: Iterable[T], seed: str, name: Callable[[T], str]) -> list[T]:
    """Return values in a random order that is the same on every machine."""
    return sorted(
        values, key=lambda value: hashlib.sha256(f"{seed}\n{name(value)}".encode()).digest()
    )
