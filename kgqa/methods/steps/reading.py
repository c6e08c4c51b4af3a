"""The last stage of methods that retrieve first: answer from the passages found, and from the pinned ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Literal

from kgqa.calls import CountTokens
from kgqa.methods.steps.few_shot import FewShot, Shot
from kgqa.methods.steps.reader import numbered, passages_text, read, with_pinned
from kgqa.types import Answer, Passage, Question

Reader = Literal["direct", "cot", "zero_shot", "short"]


async def read_passages(
    question: Question, retrieved: tuple[Passage, ...], reader: Reader, few_shot: FewShot, max_tokens: int
) -> Answer:
    """The answer of IRCoT's reader (`direct` or `cot`, few-shot), of TRACE's (`zero_shot`) or of KGP's (`short`).

    Pinned passages stand first. Evidence: the passages found, in the order given. Flags: those of the reader, and
    `empty_retrieval`.
    """
    evidence = tuple(passage.id for passage in retrieved)
    passages = with_pinned(question, retrieved)
    if reader == "zero_shot":
        answer = await read(question, passages_text(passages), evidence, max_tokens)
    elif reader == "short":
        context = numbered(passage.text for passage in passages)
        answer = await read(question, context, evidence, max_tokens, "kgp/answer")
    else:
        written = await few_shot.answer(Shot(question.text, passages, reader), max_tokens)
        shown = few_shot.shown(passages[: len(passages) - written.flags["passages_dropped"]])
        tokens = await CountTokens(passages_text(shown)) if shown else 0
        notes = {"demonstrations": written.demonstrations}
        answer = Answer(written.text, evidence, context_tokens=tokens, flags=written.flags, notes=notes)
    return answer if retrieved else replace(answer, flags=Counter(answer.flags) + Counter(["empty_retrieval"]))
