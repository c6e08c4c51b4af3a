"""Pools of demonstrations: a question a line with all that any method shows of it, ours (`kgqa/demos/pool_*.jsonl`)
or a person's own. A method's own form is made of it, see `kgqa.methods.steps.examples`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field, StringConstraints, ValidationError

from kgqa.errors import DataError
from kgqa.prompting.demonstrations import Entity, SubQuestion, ThoughtDemonstration, shuffle_examples
from kgqa.types import Json, Passage, Triple

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Parts = tuple[Text, Text, Text]


class Context(BaseModel):
    title: Text
    text: Text
    triples: tuple[Parts, ...] = ()  # what it states

    @property
    def passage(self) -> Passage:
        return Passage.of(self.title, self.text)


class Step(BaseModel):
    question: Text
    triple: Parts  # one of a passage's; its tail is the answer


class Record(BaseModel):
    """Needed by all methods are question, answer, thoughts and passages; by which others, a method's `needs` say."""

    question: Text
    answer: Text
    thoughts: Annotated[tuple[Text, ...], Field(min_length=1)]  # sentences; the last one says "the answer is: …"
    passages: Annotated[tuple[Context, ...], Field(min_length=1)]  # that support the thoughts
    pinned: tuple[Context, ...] = ()  # the main passage that the question is about
    distractors: tuple[Context, ...] = ()
    steps: tuple[Step, ...] = ()  # in an order in which each can be asked
    implied: tuple[Parts, ...] = ()  # triples that follow from what the passages state
    entities: dict[Text, Text] = {}  # of the triples, and the type of each


def question_demonstration(record: Json, where: str) -> ThoughtDemonstration:
    """Raise DataError: naming `where` (file:line), the key and what is wrong."""
    try:
        read = Record.model_validate(record)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "record"
        given = "" if first["type"] == "missing" else f"={first['input']!r:.60}"
        raise DataError(f"{where}: {key}{given}: {first['msg'].lower()}") from None
    if not read.thoughts[-1].endswith(f"the answer is: {read.answer}."):
        raise DataError(f"{where}: thoughts must end in 'the answer is: {read.answer}.', not {read.thoughts[-1]!r:.80}")
    contexts = _contexts(read)
    stated = {c.passage.id: tuple(Triple(*parts) for parts in c.triples) for c in (*read.pinned, *read.passages)}
    return ThoughtDemonstration(
        read.question,
        read.answer,
        " ".join(read.thoughts),
        contexts,
        pinned=tuple(context.passage for context in read.pinned),
        titles=tuple(dict.fromkeys(context.title for context in read.passages)),
        steps=tuple(_step(step, contexts[0], stated, where) for step in read.steps),
        triples=tuple(triple for passage in contexts[0] for triple in stated[passage.id]),
        implied=tuple(Triple(*parts) for parts in read.implied),
        entities=tuple(Entity(name, kind) for name, kind in read.entities.items()),
    )


def _contexts(record: Record) -> tuple[tuple[Passage, ...], ...]:
    """Return the passages with 0, 1, 2, … distractors among them, mixed, behind the pinned ones."""
    pinned, gold, distractors = (
        tuple(context.passage for context in contexts)
        for contexts in (record.pinned, record.passages, record.distractors)
    )
    question = record.question
    distractors = tuple(shuffle_examples(distractors, question, lambda passage: passage.id))
    return tuple(
        (*pinned, *shuffle_examples((*gold, *distractors[:count]), f"{question} {count}", lambda passage: passage.id))
        for count in range(len(distractors) + 1)
    )


def _step(step: Step, passages: tuple[Passage, ...], stated: dict[str, tuple[Triple, ...]], where: str) -> SubQuestion:
    """With the passage that answers it."""
    triple = Triple(*step.triple)
    passage = next((passage for passage in passages if triple in stated[passage.id]), None)
    if passage is None:
        raise DataError(f"{where}: steps: {triple} is among no passage's triples")
    return SubQuestion(step.question, triple, passage)
