"""MuSiQue (Trivedi et al., TACL 2022), and every file in its schema. The demo dataset is in it.

A record:

    {"id": "2hop__1", "question": "Where was the author of Birch born?", "answer": "Cedar", "answer_aliases": [],
     "answerable": true,
     "paragraphs": [
         {"idx": 0, "title": "Birch", "paragraph_text": "Birch is a book. Alder wrote it.", "is_supporting": true},
         {"idx": 1, "title": "Alder", "paragraph_text": "Alder was born in Cedar.", "is_supporting": true}],
     "question_decomposition": [
         {"question": "Birch >> author", "answer": "Alder", "paragraph_support_idx": 0},
         {"question": "#1 >> place of birth", "answer": "Cedar", "paragraph_support_idx": 1}]}
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, StrictBool, StrictInt

from kgqa.datasets import corpus
from kgqa.datasets.base import ContextDataset
from kgqa.datasets.schema import Gold, LocatedQuestions, parse_record
from kgqa.types import Hop, Question
from kgqa.util import jsonio
from kgqa.util.settings import Setting

UNANSWERABLE = "unanswerable"


class MusiqueParagraph(corpus.Paragraph):
    is_supporting: StrictBool


class MusiqueStep(BaseModel):
    question: str
    answer: str
    paragraph_support_idx: StrictInt | None = None


class MusiqueRecord(Gold):
    id: str
    question: str
    # none: a question for open retrieval
    paragraphs: tuple[MusiqueParagraph, ...] = ()
    answerable: StrictBool = True
    question_decomposition: tuple[MusiqueStep, ...] = ()
    # not MuSiQue's: the demo dataset names comparison questions
    type: str | None = None


@dataclass(frozen=True)
class MuSiQue(ContextDataset):
    """Questions of a MuSiQue file.

    MuSiQue-Full has each question twice with the same id: answerable, and with passages that do not answer it. The
    latter are skipped unless `unanswerable` is set. Then their ids and types end in "unanswerable". `hops` is the
    length of the decomposition. `type` is the record's, or the prefix of the id, e.g. "3hop1".
    """

    unanswerable: Annotated[
        bool,
        Setting("Read also the unanswerable questions of MuSiQue-Full. Other files have none."),
    ] = False

    def records(self, file: Path) -> LocatedQuestions:
        for where, raw in jsonio.stream_records(file):
            record = parse_record(MusiqueRecord, raw, where)
            if not self.unanswerable:
                yield where, _question(record, where) if record.answerable else None
            elif record.answerable:
                yield (
                    where,
                    replace(
                        _question(record, where),
                        answerable=True,
                        twin=f"{record.id} {UNANSWERABLE}",
                    ),
                )
            else:
                yield where, _unanswerable(record)


def _unanswerable(record: MusiqueRecord) -> Question:
    """Return a question to abstain from. It has no gold passages."""
    return Question(
        id=f"{record.id} {UNANSWERABLE}",
        text=record.question,
        answers=(UNANSWERABLE,),
        passages=tuple(paragraph.passage for paragraph in record.paragraphs),
        type=UNANSWERABLE,
        answerable=False,
    )


def _question(record: MusiqueRecord, where: str) -> Question:
    passages = tuple(paragraph.passage for paragraph in record.paragraphs)
    pairs = list(zip(record.paragraphs, passages, strict=True))
    by_index = {
        position if paragraph.idx is None else paragraph.idx: passage.id
        for position, (paragraph, passage) in enumerate(pairs)
    }
    steps = tuple(
        Hop(step.question, step.answer, by_index.get(step.paragraph_support_idx, ""))  # type: ignore[arg-type]
        for step in record.question_decomposition
    )
    support = [passage for paragraph, passage in pairs if paragraph.is_supporting]
    prefix, separator, _ = record.id.partition("__")
    return Question(
        id=record.id,
        text=record.question,
        answers=record.golds(where),
        passages=passages,
        support=frozenset(passage.id for passage in support),
        support_titles=record.gold_titles(passage.title for passage in support),
        hops=len(steps) or None,
        type=record.type or (prefix if separator else ""),
        decomposition=steps,
    )
