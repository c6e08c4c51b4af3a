"""Your own questions: a JSONL file, or a JSON list, and the records of `kgqa.run(dataset=[…])`.

A record. Only `question` and `answer` (or `answers`, a list) are required:

    {"id": "q1", "question": "Where was the author of Birch born?", "answers": ["Cedar", "Cedar Town"], "type": "book",
     "passages": [
         {"title": "Birch", "text": "Birch is a book. Alder wrote it.", "supporting": true},
         {"title": "Alder", "text": "Alder was born in Cedar.", "supporting": true},
         "A passage can also be a text without a title."]}
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import AliasChoices, BaseModel, Field, StrictBool, model_validator

from kgqa.datasets.base import FileDataset
from kgqa.datasets.schema import Gold, LocatedQuestions, looks_like, parse_record
from kgqa.errors import DataError
from kgqa.types import Json, Passage, Question
from kgqa.util import jsonio


class OwnPassage(BaseModel):
    title: str = ""
    text: str
    supporting: StrictBool = Field(
        False, validation_alias=AliasChoices("supporting", "is_supporting")
    )

    @model_validator(mode="before")
    @classmethod
    def name_parts(cls, value: Json) -> Json:
        """Return a text, or a pair of title and text, as an object."""
        if isinstance(value, str):
            return {"text": value}
        if isinstance(value, list | tuple) and len(value) == 2:
            return dict(zip(("title", "text"), value, strict=True))
        return value


class OwnQuestion(Gold):
    id: str | int | None = None
    question: str
    type: str = ""
    answers: list[str] = Field([], validation_alias=AliasChoices("answers", "golden_answers"))
    passages: tuple[OwnPassage, ...] = ()


@dataclass(frozen=True)
class Questions(FileDataset):
    """Questions with their answers, and with passages if there are any. The ids are q1, q2, … if there are none."""

    @property
    def remedy(self) -> str:
        return "write one with a question and an answer per line (docs/CORPORA.md)"

    def records(self, file: Path) -> LocatedQuestions:
        for number, (where, record) in enumerate(jsonio.stream_records(file), start=1):
            yield where, read_question(record, where, f"q{number}")


def read_question(record: Json, where: str, default_id: str) -> Question:
    """Return the question of a record. Raise a DataError for another form."""
    read = parse_record(OwnQuestion, record, where)
    other = looks_like({key: None for key in record if key != "golden_answers"})
    if other and "passages" not in record:
        # otherwise its passages are lost without a word
        raise DataError(
            f"{where}: this looks like {other}: run with dataset={other} dataset.path=FILE. Otherwise put the passages "
            "into the key 'passages', as texts or objects of title and text"
        )
    pairs = [(Passage.of(each.title, each.text), each.supporting) for each in read.passages]
    titles = read.gold_titles()
    support = [
        passage
        for passage, is_gold in pairs
        if is_gold or (passage.title and passage.title in titles)
    ]
    return Question(
        id=default_id if read.id is None else str(read.id),
        text=read.question,
        answers=read.golds(where),
        passages=tuple(dict.fromkeys(passage for passage, _ in pairs)),
        support=frozenset(passage.id for passage in support),
        support_titles=titles | {passage.title for passage in support if passage.title},
        type=read.type,
    )
