"""IIRC (Ferguson et al., EMNLP 2020), in its original files and in the form IRCoT processed them to (ACL 2023)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from kgqa.datasets import contexts
from kgqa.datasets.base import FileDataset
from kgqa.datasets.schema import parse_record
from kgqa.errors import DataError
from kgqa.types import Passage, Question
from kgqa.util import jsonio

MAIN = "main"  # how a gold context names the main passage


class Span(BaseModel):
    text: str


class IircAnswer(BaseModel):
    type: Literal["span", "value", "binary", "none"]
    answer_spans: tuple[Span, ...] = ()
    answer_value: str = ""

    def spans(self) -> tuple[str, ...]:
        """Return a value comes without its unit, as in IRCoT's evaluation."""
        texts = [span.text for span in self.answer_spans] if self.type == "span" else [self.answer_value]
        return tuple(text.strip() for text in texts if text.strip())


class Context(BaseModel):
    passage: str  # a page's title, or "main"
    text: str = ""  # words of the page


class OriginalQuestion(BaseModel):
    qid: str | None = None
    question: str
    answer: IircAnswer
    context: tuple[Context, ...] = ()


class Original(BaseModel):
    """A main passage and the questions asked about it; what answers them stands in the pages it links to."""

    pid: str | None = None
    title: str
    text: str
    questions: tuple[OriginalQuestion, ...]


class AnswersObject(BaseModel):
    """DROP's form."""

    number: str = ""
    date: Mapping[str, str] = {}
    spans: tuple[str, ...] = ()

    def texts(self) -> tuple[str, ...]:
        if self.number.strip():
            return (self.number.strip(),)
        spans = tuple(span.strip() for span in self.spans if span.strip())
        date = "-".join(part for key in ("day", "month", "year") if (part := self.date.get(key, "").strip()))
        return spans or ((date,) if date else ())


class Processed(contexts.IIRCContext):
    question_id: str
    question_text: str
    pinned_contexts: tuple[contexts.Paragraph, ...] = ()
    answers_objects: tuple[AnswersObject, ...]


@dataclass(frozen=True)
class IIRC(FileDataset):
    """Questions about a main passage, which is `pinned`; the rest of the answer is in pages that it links to.

    Original files have no other passages, and quote their gold ones: some words of a page. Processed ones come with
    paragraphs of the linked pages; gold ones under the main passage's title are no support, since it is given anyway.
    Questions without an answer are left out, as IRCoT does. An answer of several spans is one gold, written as a
    JSON list, which the `drop` profile reads. `type` is the original's kind of answer: span, value or binary.
    """

    def records(self, file: Path) -> Iterator[tuple[str, Question | None]]:
        for number, (where, raw) in enumerate(jsonio.stream_records(file)):
            if isinstance(raw, dict) and "questions" in raw:
                record = parse_record(Original, raw, where)
                for place, question in enumerate(record.questions):
                    identity = question.qid or f"{record.pid or number}_{place}"
                    yield f"{where}, question {identity}", _original(record, question, identity, where)
            else:
                yield where, _process(parse_record(Processed, raw, where), where)


def _original(record: Original, question: OriginalQuestion, identity: str, where: str) -> Question | None:
    if question.answer.type == "none":
        return None
    quoted = [
        Passage.of(contexts.plain(context.passage.strip()), context.text.strip())
        for context in question.context
        if context.passage.strip() != MAIN
    ]
    return Question(
        id=identity,
        text=question.question,
        answers=(_gold(question.answer.spans(), f"{where}, question {identity}"),),
        pinned=(Passage.of(contexts.plain(record.title.strip()), record.text.strip()),),
        support_titles=frozenset(passage.title for passage in quoted),
        quoted=tuple(passage for passage in quoted if passage.text),
        type=question.answer.type,
    )


def _process(record: Processed, where: str) -> Question | None:
    answers = Counter(answer.texts() for answer in record.answers_objects)  # of several annotators the commonest
    passages = contexts.of_paragraphs(record.contexts)
    pinned = contexts.of_paragraphs(record.pinned_contexts)
    given = {passage.title for passage in pinned}
    support = [
        passage
        for passage, paragraph in zip(passages, record.contexts, strict=True)
        if paragraph.is_supporting and passage.title not in given
    ]
    return Question(
        id=record.question_id,
        text=record.question_text,
        answers=(_gold(answers.most_common(1)[0][0] if answers else (), where),),
        passages=passages,
        pinned=pinned,
        support=frozenset(passage.id for passage in support),
        support_titles=frozenset(passage.title for passage in support),
    )


def _gold(spans: tuple[str, ...], where: str) -> str:
    if not spans:
        raise DataError(f"{where}: the answer has no text; correct the record, or mark it as type 'none'")
    return spans[0] if len(spans) == 1 else json.dumps(spans, ensure_ascii=False)
