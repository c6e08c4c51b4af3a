"""Upper bound: the supporting passages only, in their original order (KGP's "Golden")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kgqa.errors import DataError
from kgqa.methods.steps.reader import TEMPLATES, ZeroShot, numbered, passages_text, read, with_pinned
from kgqa.protocols import Need
from kgqa.types import Answer, Question


@dataclass(frozen=True)
class Golden:
    reader: ZeroShot
    max_answer_tokens: int

    uses: ClassVar[frozenset[Need]] = frozenset({"model"})

    async def answer(self, question: Question) -> Answer:
        """Raises:
        DataError: none of the question's passages is marked as supporting; no upper bound could be read from it.
        """
        gold = {passage.id: passage for passage in question.passages if passage.id in question.support}
        if not gold:
            raise DataError(f"question {question.id}: no passage is marked as supporting; method=golden needs one")
        short = self.reader == "short"
        shown = with_pinned(question, gold.values())
        context = numbered(passage.text for passage in shown) if short else passages_text(shown)
        return await read(question, context, tuple(gold), self.max_answer_tokens, TEMPLATES[self.reader])
