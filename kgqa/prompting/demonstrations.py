"""Labelled examples for in-context learning: documents with their triples, questions with their chains or thoughts.

Two forms of record are read, ours (`kgqa/demos/*.jsonl`) and those of the papers' authors; opening files, and reading
pools of questions, is left to `kgqa.datasets`. Triples of documents and chains are kept as the text the prompts show:
a few of the authors' have two parts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, TypeVar

from kgqa.calls import Rank, labels
from kgqa.errors import ConfigError, DataError
from kgqa.types import Json, Passage, Triple

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


def set_said(labelled: Sequence[ThoughtDemonstration], number: int, count: int) -> str:
    """Return which questions `demonstration_set` takes, for a report."""
    shown = len(demonstration_set(labelled, number, count))
    if not (released := _load_released_set(labelled, number)):
        return f"{shown} of {len(labelled)} questions, random sample {number}"
    said = f"{shown} of the {RELEASED_SET} questions of the authors' set {number}"
    return said if len(released) == RELEASED_SET else f"{said}, {len(released)} of which the file has"


def _load_released_set(labelled: Sequence[ThoughtDemonstration], number: int) -> tuple[ThoughtDemonstration, ...]:
    """Return empty for questions that are in no set of the authors'."""
    known = {place for demonstration in labelled for place in demonstration.places}
    if known and number not in known:
        raise ConfigError(f"method.demonstration_set={number}: the authors have sets 1 to {max(known)}")
    placed = (demonstration for demonstration in labelled if number in demonstration.places)
    return tuple(sorted(placed, key=lambda demonstration: demonstration.places[number]))


def parse_document(record: Json, where: str) -> DocumentDemonstration:
    """Return a record of ours (`triples`: lists of three parts) or of the authors (`triples`: lines of `<h; r; t>`).

    Raises:
        DataError: naming `where` (file:line) and what is wrong.
    """
    title, text, triples = (_field(record, key, where) for key in ("title", "text", "triples"))
    if isinstance(triples, str):
        shown = tuple(line.strip() for line in triples.split("\n") if line.strip())
    else:
        shown = tuple(_triple_text(triple, where) for triple in _list(triples, "triples", where))
    return DocumentDemonstration(_text(title, "title", where), _text(text, "text", where), shown)


def parse_chain(record: Json, where: str) -> ChainDemonstration:
    """Return a record of ours: `{"question", "steps": [{"candidates": [[h, r, t], …], "choice": 0-based or null}, …]}`.

    Raises:
        DataError: naming `where` (file:line) and what is wrong.
    """
    question = _text(_field(record, "question", where), "question", where)
    selections = []
    for step in _list(_field(record, "steps", where), "steps", where):
        candidates = _list(_field(step, "candidates", where), "candidates", where)
        choice = _field(step, "choice", where)
        if choice is not None and (not isinstance(choice, int) or isinstance(choice, bool)):
            raise DataError(f"{where}: choice={choice!r} must be a position in candidates, or null to stop")
        selections.append(Selection(tuple(_triple_text(triple, where) for triple in candidates), choice))
    return _check(ChainDemonstration(question, tuple(selections)), where)


def parse_released_chain(record: Json, where: str) -> ChainDemonstration:
    """Return a record of the authors: one list of steps, options lettered, option A to stop, `answer` a letter.

    Raises:
        DataError: naming `where` and what is wrong.
    """
    steps = _list(record, "the chain", where)
    selections = []
    for step in steps:
        options = _list(_field(step, "candidate_triples", where), "candidate_triples", where)
        letters = labels(len(options))
        answer = _field(step, "answer", where)
        if answer not in letters:
            raise DataError(f"{where}: answer={answer!r} is not the letter of an option ({', '.join(letters)})")
        candidates = tuple(
            _text(option, "candidate_triples", where).removeprefix(f"{letter}.").strip()
            for letter, option in zip(letters, options, strict=True)
        )
        selections.append(Selection(candidates[1:], None if answer == "A" else letters.index(answer) - 1))
    question = _text(_field(steps[0], "question", where), "question", where)
    return _check(ChainDemonstration(question, tuple(selections)), where)


def shuffle_examples(values: Iterable[T], seed: str, name: Callable[[T], str]) -> list[T]:
    """In a random order that is the same everywhere and always."""
    return sorted(values, key=lambda value: hashlib.sha256(f"{seed}\n{name(value)}".encode()).digest())


def _check(demonstration: ChainDemonstration, where: str) -> ChainDemonstration:
    for number, step in enumerate(demonstration.selections, start=1):
        if step.choice is None and number < len(demonstration.selections):
            raise DataError(f"{where}: step {number} stops, but more steps follow")
        if step.choice is not None and not 0 <= step.choice < len(step.candidates):
            last = len(step.candidates) - 1
            raise DataError(f"{where}: step {number} has choice={step.choice}, but candidates 0 to {last}")
    if not demonstration.chain:
        raise DataError(f"{where}: the chain selects no triple")
    return demonstration


def _field(record: Json, key: str, where: str) -> Json:
    if not isinstance(record, dict):
        raise DataError(f"{where}: expected an object with {key!r}, found {record!r:.60}")
    if key not in record:
        raise DataError(f"{where}: {key!r} is missing (found: {', '.join(record) or 'nothing'})")
    return record[key]


def _text(value: Json, key: str, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{where}: {key}={value!r:.60} must be a text that is not empty")
    return value.strip()


def _list(value: Json, key: str, where: str) -> list[Json]:
    if not isinstance(value, list) or not value:
        raise DataError(f"{where}: {key}={value!r:.60} must be a list that is not empty")
    return value


def _triple_text(parts: Json, where: str) -> str:
    if not isinstance(parts, list) or len(parts) != 3:
        raise DataError(f"{where}: triple {parts!r:.80} must be [head, relation, tail]")
    head, relation, tail = (_text(part, "a triple's part", where) for part in parts)
    return str(Triple(head, relation, tail))
