"""MuSiQue (Trivedi et al., TACL 2022), and every file in its schema: the demo set ships in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, StrictBool, StrictInt

from kgqa import hashing
from kgqa.datasets import files
from kgqa.datasets.schema import checked, gold, parsed
from kgqa.types import Hop, Passage, Question


class Paragraph(BaseModel):
    title: str
    paragraph_text: str
    is_supporting: StrictBool
    idx: StrictInt | None = None  # None: the place in the list


class Step(BaseModel):
    question: str
    answer: str
    paragraph_support_idx: StrictInt | None = None


class Record(BaseModel):
    id: str
    question: str
    paragraphs: list[Paragraph]
    answer: str | None = None
    answer_aliases: list[str] = []
    answerable: StrictBool = True
    question_decomposition: list[Step] = []
    type: str | None = None  # not MuSiQue's: the demo set names comparison questions


@dataclass(frozen=True)
class MuSiQue:
    """Questions of a MuSiQue file.

    Unanswerable questions (MuSiQue-Full) are left out: they share their ids with answerable ones and have no
    gold answer to score. Two paragraphs with one title stay two passages. A step's "#1" stays as it stands.
    `hops` is the length of the decomposition; `type` is the id's prefix, e.g. "3hop1", unless the record has its own.
    """

    name: str
    path: str | None
    files: tuple[str, ...]
    profile: str
    source: str

    def __post_init__(self) -> None:
        files.refuse_no_names(self.name, self.files)

    @property
    def file(self) -> Path:
        return files.find(self.name, self.path, self.files)

    @property
    def sha256(self) -> str:
        """Of the data file as it lies on disk."""
        return hashing.sha256(self.file)

    def preparation(self) -> str:
        """How to get the file, or where it was found; one line."""
        return files.preparation(self.name, self.path, self.files, self.source)

    def questions(self) -> Iterator[Question]:
        """In file order.

        Raises:
            DataError: on coming to a broken record, a repeated id, or the end of a file without questions.
        """
        file = self.file
        return checked(self._questions(file), file)

    def _questions(self, file: Path) -> Iterator[tuple[str, Question]]:
        for where, record in files.records(file):
            checked_record = parsed(Record, record, where)
            if checked_record.answerable:
                yield where, _question(checked_record, where)


def _question(record: Record, where: str) -> Question:
    passages = [Passage.of(paragraph.title, paragraph.paragraph_text) for paragraph in record.paragraphs]
    by_index = {
        place if paragraph.idx is None else paragraph.idx: passage.id
        for place, (paragraph, passage) in enumerate(zip(record.paragraphs, passages, strict=True))
    }
    steps = [
        Hop(step.question, step.answer, by_index.get(step.paragraph_support_idx, ""))  # type: ignore[arg-type]
        for step in record.question_decomposition
    ]
    support = (p.id for p, paragraph in zip(passages, record.paragraphs, strict=True) if paragraph.is_supporting)
    prefix, separator, _ = record.id.partition("__")
    return Question(
        id=record.id,
        text=record.question,
        answers=gold(where, record.answer, record.answer_aliases),
        passages=tuple(passages),
        support=frozenset(support),
        hops=len(steps) or None,
        type=record.type or (prefix if separator else ""),
        decomposition=tuple(steps),
    )
