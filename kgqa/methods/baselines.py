"""Baselines without retrieval: the question alone, all passages of the question, and its gold passages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kgqa.errors import DataError
from kgqa.methods.steps.reader import TEMPLATES, ZeroShot, add_pinned, number_contexts, passages_text, read
from kgqa.protocols import Need
from kgqa.types import Answer, Question


@dataclass(frozen=True)
class NoContext:
    """The question alone ("w/o documents" in TRACE, "None" in KGP, "NoR" in IRCoT)."""

    reader: ZeroShot
    max_answer_tokens: int

    uses: ClassVar[frozenset[Need]] = frozenset({"model"})

    async def answer(self, question: Question) -> Answer:
        return await read(question, "", (), self.max_answer_tokens, TEMPLATES[self.reader])


@dataclass(frozen=True)
class AllDocuments:
    """All passages of the question in their order ("w. all documents", TRACE §C.2)."""

    max_answer_tokens: int

    uses: ClassVar[frozenset[Need]] = frozenset({"model"})

    async def answer(self, question: Question) -> Answer:
        """Answer from all passages. Repeated ones are shown each time, but are evidence once."""
        evidence = tuple(dict.fromkeys(passage.id for passage in question.passages))
        context = passages_text(add_pinned(question, question.passages))
        return await read(question, context, evidence, self.max_answer_tokens)


@dataclass(frozen=True)
class Golden:
    """The upper bound: only the gold passages, in their order (KGP's "Golden")."""

    reader: ZeroShot
    max_answer_tokens: int

    uses: ClassVar[frozenset[Need]] = frozenset({"model"})

    async def answer(self, question: Question) -> Answer:
        """Answer from the gold passages.

        Raises:
            DataError: the question has no gold passages.
        """
        gold = {passage.id: passage for passage in question.passages if passage.id in question.support}
        if not gold:
            raise DataError(f"question {question.id}: no passage is marked as supporting; method=golden needs one")
        short = self.reader == "short"
        shown = add_pinned(question, gold.values())
        context = number_contexts(passage.text for passage in shown) if short else passages_text(shown)
        return await read(question, context, tuple(gold), self.max_answer_tokens, TEMPLATES[self.reader])
