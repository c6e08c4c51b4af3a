"""Baseline: every passage of the question in its original order ("w. all documents", TRACE §C.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kgqa.methods.steps.reader import passages_text, read, with_pinned
from kgqa.protocols import Need
from kgqa.types import Answer, Question


@dataclass(frozen=True)
class AllDocuments:
    max_answer_tokens: int

    uses: ClassVar[frozenset[Need]] = frozenset({"model"})

    async def answer(self, question: Question) -> Answer:
        """Repeated passages are shown each time, as the data set has them, but count once as evidence."""
        evidence = tuple(dict.fromkeys(passage.id for passage in question.passages))
        context = passages_text(with_pinned(question, question.passages))
        return await read(question, context, evidence, self.max_answer_tokens)
