"""Labelled examples for in-context learning: documents with their triples, questions with their chains or thoughts.

`kgqa.datasets.demonstrations` reads them from files. Triples of documents and chains are the text that prompts show.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, TypeVar

from kgqa.calls import Rank
from kgqa.errors import ConfigError
from kgqa.types import Passage, Triple

Mode = Literal["adaptive", "fixed", "none"]
RELEASED_SET = 15  # questions of each of the three sets of IRCoT's authors: §4.1, and their program's `run.py`


@dataclass(frozen=True, slots=True)
class DocumentDemonstration:
    """A document and every triple an annotator reads in it."""

    title: str
    text: str
    triples: tuple[str, ...]

    @property
    def topic(self) -> str:
        """Return what a query is compared with to find the nearest demonstrations."""
        return f"{self.title}: {self.text}"


@dataclass(frozen=True, slots=True)
class Selection:
    """One step of a labelled chain: the triples on offer and which of them continues the chain."""

    candidates: tuple[str, ...]
    choice: int | None  # None: the chain is complete, no triple is taken


@dataclass(frozen=True, slots=True)
class ChainDemonstration:
    """A question and the selections that build its chain; only the last one may stop."""

    question: str
    selections: tuple[Selection, ...]

    @property
    def topic(self) -> str:
        return self.question

    @property
    def chain(self) -> tuple[str, ...]:
        return tuple(step.candidates[step.choice] for step in self.selections if step.choice is not None)


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
    """A question of a pool, the chain of thought that answers it, passages that support the chain, what they say.

    `contexts[m]` are the passages to show with m distractors among them, in the order to show them. Questions of the
    papers' authors have no `steps`, `triples`, `implied` and `entities`.
    """

    question: str
    answer: str
    thoughts: str  # one line; its last sentence says "the answer is: …"
    contexts: tuple[tuple[Passage, ...], ...]
    pinned: tuple[Passage, ...] = ()  # IIRC's main passage, which is in the contexts too
    titles: tuple[str, ...] = ()  # of the pages beside the pinned one that support the chain
    steps: tuple[SubQuestion, ...] = ()  # in an order in which each can be asked
    triples: tuple[Triple, ...] = ()  # what the passages of `contexts[0]` state, in their order
    implied: tuple[Triple, ...] = ()  # what follows from these
    entities: tuple[Entity, ...] = ()  # of these
    places: Mapping[int, int] = field(default_factory=dict, hash=False)  # in the authors' sets, by the set's number

    def context(self, distractors: int) -> tuple[Passage, ...]:
        """Return the context with so many distractors, or as many as there are."""
        return self.contexts[min(distractors, len(self.contexts) - 1)]


class Demonstration(Protocol):
    @property
    def topic(self) -> str: ...


D = TypeVar("D", bound=Demonstration)
T = TypeVar("T")


async def choose_demonstrations(labelled: Sequence[D], mode: Mode, count: int, query: str) -> tuple[D, ...]:
    """Return the demonstrations to show, the one to keep longest first.

    `adaptive`: the `count` nearest to the query, the nearest first; ties by position in the file. `fixed`: the first
    `count` of the file. `none`: no one.
    """
    if mode == "none" or not labelled or not count:
        return ()
    if mode == "fixed":
        return tuple(labelled[:count])
    topics = tuple(demonstration.topic for demonstration in labelled)
    scores = await Rank(query, topics, scorer="demonstrations_ranker")
    nearest = sorted(range(len(labelled)), key=lambda position: -scores[position])[:count]
    return tuple(labelled[position] for position in nearest)


def nearest_last(chosen: Sequence[D], mode: Mode) -> tuple[D, ...]:
    """Return the nearest last in the order to show them: the nearest stands next to the real input (not in the TRACE
    paper).
    """
    return tuple(reversed(chosen)) if mode == "adaptive" else tuple(chosen)


def demonstration_set(
    labelled: Sequence[ThoughtDemonstration], number: int, count: int
) -> tuple[ThoughtDemonstration, ...]:
    """`count` questions, or all there are: the `number`-th random sample, in the pool's order; of the authors'
    questions their own set, in its order.

    Raises:
        ConfigError: the authors have no set of this number.
    """
    if released := _load_released_set(labelled, number):
        return released[:count]
    drawn = shuffle_examples(labelled, f"set {number}", lambda demonstration: demonstration.question)[:count]
    return tuple(demonstration for demonstration in labelled if demonstration in drawn)


def describe_set(labelled: Sequence[ThoughtDemonstration], number: int, count: int) -> str:
    """Describe the questions of `demonstration_set`, for a report."""
    shown = len(demonstration_set(labelled, number, count))
    if not (released := _load_released_set(labelled, number)):
        return f"{shown} of {len(labelled)} questions, random sample {number}"
    text = f"{shown} of the {RELEASED_SET} questions of the authors' set {number}"
    return text if len(released) == RELEASED_SET else f"{text}, {len(released)} of which the file has"


def _load_released_set(labelled: Sequence[ThoughtDemonstration], number: int) -> tuple[ThoughtDemonstration, ...]:
    """Return the authors' set of demonstrations, or none for questions that are in none of their sets."""
    known = {place for demonstration in labelled for place in demonstration.places}
    if known and number not in known:
        raise ConfigError(f"method.demonstration_set={number}: the authors have sets 1 to {max(known)}")
    placed = (demonstration for demonstration in labelled if number in demonstration.places)
    return tuple(sorted(placed, key=lambda demonstration: demonstration.places[number]))


def shuffle_examples(values: Iterable[T], seed: str, name: Callable[[T], str]) -> list[T]:
    """Return values in a random order that is the same on every machine."""
    return sorted(values, key=lambda value: hashlib.sha256(f"{seed}\n{name(value)}".encode()).digest())
