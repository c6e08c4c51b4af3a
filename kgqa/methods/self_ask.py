"""Self-Ask (Press et al., Findings of EMNLP 2023) with retrieval, as a baseline of KnowTrace (Appendix C).

Stages: retrieve by the question → the model asks a follow-up question → retrieve by it → the model gives its
intermediate answer and asks on, or concludes. All passages stand before the question (Yoran et al., EMNLP 2023).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from kgqa.calls import CountTokens, Generate, Search
from kgqa.constraints import Count
from kgqa.methods.steps.examples import Pooled
from kgqa.methods.steps.reader import passages_text, with_pinned
from kgqa.methods.steps.replies import counted, labelled
from kgqa.prompting import render
from kgqa.protocols import Need
from kgqa.types import Answer, Passage, Question

ANSWERED = "\nIntermediate answer:"
CONCLUDED = "\nFinal answer:"


@dataclass(frozen=True)
class SelfAsk(Pooled):
    """Fields as in conf/method/self_ask.yaml, which cites the source of each value."""

    passages: Count
    search_question: bool
    max_follow_ups: Count
    max_tokens: Count

    uses: ClassVar[frozenset[Need]] = frozenset({"model", "search"})

    async def answer(self, question: Question) -> Answer:
        """Evidence: all passages, those of the question first. Notes: the transcript and the follow-up questions.

        Flags: `forced_answer` where no conclusion came within `max_follow_ups` questions, or the reply was neither a
        question nor a conclusion (`unreadable_reply`), or a question came again (`repeated_follow_up`);
        `empty_retrieval`, `cut_reply`, `empty_answer`.
        """
        flags = Counter[str]()
        passages = await self.search(question.text, flags) if self.search_question else {}
        transcript, follow_ups, text = "Follow-up:", list[str](), ""
        for _ in range(self.max_follow_ups):
            transcript += await self.go_on(question, passages, transcript, flags)
            written = transcript.rpartition(ANSWERED)[2]
            follow_up, text = labelled("Follow-up", written), labelled("Final answer", written)
            if text or not follow_up or follow_up in follow_ups:
                flags["repeated_follow_up"] += not text and follow_up in follow_ups
                flags["unreadable_reply"] += not text and not follow_up
                break
            follow_ups.append(follow_up)
            passages |= await self.search(follow_up, flags)
            transcript += ANSWERED
        if not text:
            flags["forced_answer"] += 1
            transcript = transcript.removesuffix(ANSWERED) + CONCLUDED
            text = (await self.go_on(question, passages, transcript, flags)).strip().partition("\n")[0]
            transcript += f" {text}"
        flags["empty_answer"] += not text
        context = passages_text(with_pinned(question, passages.values()))
        return Answer(
            text,
            tuple(passages),
            context_tokens=await CountTokens(context) if context else 0,
            flags=counted(**flags),
            figures={"follow_ups": len(follow_ups)},
            notes={"transcript": transcript.strip(), "follow_ups": follow_ups},
        )

    async def search(self, query: str, flags: Counter[str]) -> dict[str, Passage]:
        passages = await Search(query, self.passages)
        flags["empty_retrieval"] += not passages
        return {passage.id: passage for passage in passages}

    async def go_on(
        self, question: Question, by_id: Mapping[str, Passage], transcript: str, flags: Counter[str]
    ) -> str:
        """What the model writes after the transcript, up to where the next intermediate answer would stand."""
        prompt = render(
            "self_ask/ask",
            examples=self.examples,
            passages=passages_text(with_pinned(question, by_id.values())),
            question=question.text,
            transcript=transcript,
        )
        reply = await Generate(prompt, self.max_tokens, stop=(ANSWERED.lstrip("\n"), "\nPassages:"))
        flags["cut_reply"] += reply.finish == "length"
        return reply.text.rstrip()
