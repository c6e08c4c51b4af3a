"""Baseline: the question alone ("w/o documents" in TRACE, "None" in KGP, "NoR" in IRCoT)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kgqa.methods.steps.reader import TEMPLATES, ZeroShot, read
from kgqa.protocols import Need
from kgqa.types import Answer, Question


@dataclass(frozen=True)
class NoContext:
    reader: ZeroShot
    max_answer_tokens: int

    uses: ClassVar[frozenset[Need]] = frozenset({"model"})

    async def answer(self, question: Question) -> Answer:
        return await read(question, "", (), self.max_answer_tokens, TEMPLATES[self.reader])
