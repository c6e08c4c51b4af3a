"""IIRC (Ferguson et al., EMNLP 2020), in its original files and in the form IRCoT processed them to (ACL 2023).

A record of an original file, with the questions about one main passage:

    {"pid": "p1", "title": "Birch", "text": "Birch is a book. Alder wrote it.",
     "questions": [
         {"qid": "q1", "question": "Where was the author of Birch born?",
          "answer": {"type": "span", "answer_spans": [{"text": "Cedar", "passage": "alder"}]},
          "context": [{"passage": "main", "text": "Alder wrote it."}, {"passage": "Alder", "text": "born in Cedar"}]}]}

A processed record:

    {"question_id": "q1", "question_text": "Where was the author of Birch born?",
     "answers_objects": [{"number": "", "date": {}, "spans": ["Cedar"]}],
     "contexts": [{"idx": 0, "title": "Alder", "paragraph_text": "Alder was born in Cedar.", "is_supporting": true}],
     "pinned_contexts": [{"idx": 0, "title": "Birch", "paragraph_text": "Birch is a book. Alder wrote it."}]}
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from kgqa.datasets.base import ContextDataset
from kgqa.datasets.corpus import Paragraph
from kgqa.datasets.schema import LocatedQuestions, parse_record, plain_title
from kgqa.errors import DataError
from kgqa.types import Passage, Question
from kgqa.util import jsonio

# the name of the main passage in a gold context
MAIN = "main"


class Span(BaseModel):
    text: str


class OriginalAnswer(BaseModel):
    type: Literal["span", "value", "binary", "none"]
    answer_spans: tuple[Span, ...] = ()
    answer_value: str = ""

    def spans(self) -> list[str]:
        """Return the answer's texts; a value without its unit, as in IRCoT's evaluation."""
        return (
            [span.text for span in self.answer_spans]
            if self.type == "span"
            else [self.answer_value]
        )


class Context(BaseModel):
    passage: str  # a page's title, or "main"
    text: str = ""  # words of the page


class OriginalQuestion(BaseModel):
    qid: str | None = None
    question: str
    answer: OriginalAnswer
    context: tuple[Context, ...] = ()


class Original(BaseModel):
    """A main passage and the questions about it, which are answered by pages that it links to."""

    pid: str | None = None
    title: str
    text: str
    questions: tuple[OriginalQuestion, ...]


class ProcessedAnswer(BaseModel):
    """An answer in DROP's form."""

    number: str = ""
    date: Mapping[str, str] = {}
    spans: tuple[str, ...] = ()

    def texts(self) -> tuple[str, ...]:
        date = "-".join(
            part for key in ("day", "month", "year") if (part := self.date.get(key, "").strip())
        )
        forms = ([self.number], self.spans, [date])
        return next(
            (texts for form in forms if (texts := tuple(text for text in form if text.strip()))), ()
        )


class Processed(BaseModel):
    """IRCoT's processed form."""

    question_id: str
    question_text: str
    contexts: tuple[Paragraph, ...]
    pinned_contexts: tuple[Paragraph, ...] = ()
    answers_objects: tuple[ProcessedAnswer, ...]


@dataclass(frozen=True)
class IIRC(ContextDataset):
    """Questions about a main passage, which is `pinned`, and about pages that it links to.

    Original files have no other passages and quote words of their gold pages. Processed ones have paragraphs of the
    linked pages. Those with the main passage's title are no support, as each prompt contains it. Questions without an
    answer are skipped, as in IRCoT. An answer of several spans is one gold answer, a JSON list, which the `drop`
    profile reads. `type` is the original's kind of answer: span, value or binary.
    """

    def records(self, file: Path) -> LocatedQuestions:
        for number, (where, raw) in enumerate(jsonio.stream_records(file)):
            if isinstance(raw, dict) and "questions" in raw:
                page = parse_record(Original, raw, where)
                for position, question in enumerate(page.questions):
                    identity = question.qid or f"{page.pid or number}_{position}"
                    location = f"{where}, question {identity}"
                    answered = question.answer.type != "none"
                    yield (
                        location,
                        _original(page, question, identity, location) if answered else None,
                    )
            else:
                yield where, _processed(parse_record(Processed, raw, where), where)


def _original(page: Original, question: OriginalQuestion, identity: str, where: str) -> Question:
    quoted = [
        Passage.of(plain_title(context.passage.strip()), context.text.strip())
        for context in question.context
        if context.passage.strip() != MAIN
    ]
    return Question(
        id=identity,
        text=question.question,
        answers=(_gold(question.answer.spans(), where),),
        pinned=(Passage.of(plain_title(page.title.strip()), page.text.strip()),),
        support_titles=frozenset(passage.title for passage in quoted),
        quoted=tuple(passage for passage in quoted if passage.text),
        type=question.answer.type,
    )


def _processed(record: Processed, where: str) -> Question:
    # the most common of several annotators
    answers = Counter(answer.texts() for answer in record.answers_objects)
    pinned = tuple(paragraph.passage for paragraph in record.pinned_contexts)
    titles = {passage.title for passage in pinned}
    support = [
        each.passage
        for each in record.contexts
        if each.is_supporting and plain_title(each.title) not in titles
    ]
    return Question(
        id=record.question_id,
        text=record.question_text,
        answers=(_gold(answers.most_common(1)[0][0] if answers else (), where),),
        passages=tuple(paragraph.passage for paragraph in record.contexts),
        pinned=pinned,
        support=frozenset(passage.id for passage in support),
        support_titles=frozenset(passage.title for passage in support),
    )


def _gold(texts: Iterable[str], where: str) -> str:
    spans = [text.strip() for text in texts if text.strip()]
    if not spans:
        raise DataError(
            f"{where}: the answer has no text. Correct the record, or mark it as type 'none'"
        )
    return spans[0] if len(spans) == 1 else json.dumps(spans, ensure_ascii=False)
