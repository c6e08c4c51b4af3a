"""Baselines without retrieval: the question alone, with and without reasoning, all passages, and the gold passages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from kgqa.errors import DataError
from kgqa.methods.steps.reader import TEMPLATES, ReadingLog, ZeroShot, read, read_zero_shot
from kgqa.prompting import render
from kgqa.protocols import Need
from kgqa.types import Answer, Question
from kgqa.util.settings import Setting
from kgqa.util.validators import Count


@dataclass(frozen=True)
class NoContext:
    """The question alone ("w/o documents" in TRACE, "None" in KGP, "NoR" in IRCoT)."""

    reader: Annotated[ZeroShot, Setting("TRACE Fig. 7 | short, KGP's (supplement 8.9)")] = (
        "zero_shot"
    )
    max_answer_tokens: Annotated[
        int,
        Setting("Maximum tokens of the answer.", ours="our choice", paper="TRACE's released code"),
    ] = 25

    uses: ClassVar[frozenset[Need]] = frozenset({"model"})

    async def answer(self, question: Question) -> Answer:
        return await read(question, "", (), self.max_answer_tokens, TEMPLATES[self.reader])


@dataclass(frozen=True)
class ChainOfThought:
    """The question alone, with reasoning before the answer (Kojima et al., NeurIPS 2022)."""

    max_tokens: Annotated[
        Count, Setting("Maximum tokens of reasoning and answer.", ours="our choice")
    ] = 512

    uses: ClassVar[frozenset[Need]] = frozenset({"model"})

    async def answer(self, question: Question) -> Answer:
        """Reason and answer. Notes: the reasoning. Flags: those of `ReadingLog`."""
        log = ReadingLog(question)
        reply = await log.write(
            render("cot/answer", question=question.text), self.max_tokens, ("\nQuestion:",)
        )
        return log.answer(log.read_conclusion(reply), (), {"thought": reply})


@dataclass(frozen=True)
class AllDocuments:
    """All passages of the question in their order ("w. all documents", TRACE §C.2)."""

    max_answer_tokens: Annotated[
        int,
        Setting("Maximum tokens of the answer.", ours="our choice", paper="TRACE's released code"),
    ] = 25

    uses: ClassVar[frozenset[Need]] = frozenset({"model"})
    reads_passages: ClassVar[bool] = True

    async def answer(self, question: Question) -> Answer:
        """Answer from all passages. Repeated ones are shown each time, but are evidence once."""
        return await read_zero_shot(question, question.passages, self.max_answer_tokens)


@dataclass(frozen=True)
class Golden:
    """The upper bound: only the gold passages, in their order (KGP's "Golden")."""

    reader: Annotated[ZeroShot, Setting("TRACE Fig. 7 | short, KGP's (supplement 8.9)")] = (
        "zero_shot"
    )
    max_answer_tokens: Annotated[
        int,
        Setting("Maximum tokens of the answer.", ours="our choice", paper="TRACE's released code"),
    ] = 25

    uses: ClassVar[frozenset[Need]] = frozenset({"model"})
    reads_passages: ClassVar[bool] = True

    async def answer(self, question: Question) -> Answer:
        """Answer from the gold passages. Raises DataError: the question has no gold passages."""
        gold = {
            passage.id: passage for passage in question.passages if passage.id in question.support
        }
        if not gold:
            raise DataError(
                f"question {question.id}: no passage is marked as supporting, but method=golden needs one"
            )
        return await read_zero_shot(question, [*gold.values()], self.max_answer_tokens, self.reader)
