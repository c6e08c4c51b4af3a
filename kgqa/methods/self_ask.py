"""Self-Ask (Press et al., Findings of EMNLP 2023) with retrieval, as a baseline of KnowTrace (Appendix C).

Stages: retrieve by the question → the model asks a follow-up question → retrieve by it → the model gives its
intermediate answer and another follow-up question, or concludes. All passages come before the question (Yoran et al.,
EMNLP 2023).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from kgqa.calls import Search
from kgqa.methods.steps.examples import PooledFewShot
from kgqa.methods.steps.reader import ReadingLog, add_pinned, merge_rankings, passages_text
from kgqa.methods.steps.replies import text_after_label
from kgqa.prompting import render
from kgqa.protocols import Need
from kgqa.types import Answer, Passage, Prompt, Question
from kgqa.util.validators import Count

ANSWERED = "\nIntermediate answer:"
CONCLUDED = "\nFinal answer:"


@dataclass(slots=True)
class SelfAskState:
    """The passages and the transcript so far."""

    searches: list[tuple[Passage, ...]] = field(default_factory=list)  # the passages of each search
    transcript: str = "Follow-up:"
    reading: ReadingLog = field(default_factory=ReadingLog)

    @property
    def passages(self) -> dict[str, Passage]:
        """Return the distinct passages by id, first retrieved first."""
        return {passage.id: passage for passages in self.searches for passage in passages}


@dataclass(frozen=True)
class SelfAsk(PooledFewShot):
    """The method, with the fields of conf/method/self_ask.yaml."""

    passages: Count
    search_question: bool
    max_follow_ups: Count
    max_tokens: Count

    uses: ClassVar[frozenset[Need]] = frozenset({"model", "search"})

    async def answer(self, question: Question) -> Answer:
        """Ask and answer follow-up questions, then answer.

        Evidence: all passages, those of the question first. Notes: the transcript and the follow-up questions. Figures:
        follow_ups, and passage_tokens (#Tok of KnowTrace's Table 2).

        Flags: `forced_answer` (no conclusion within `max_follow_ups` questions, or after `unreadable_reply` or
        `repeated_follow_up`), `unreadable_reply` (neither a question nor a conclusion), `repeated_follow_up`,
        `empty_retrieval`, `passages_dropped`, `cut_reply`, `empty_answer`.
        """
        state, follow_ups, text = SelfAskState(), list[str](), ""
        flags = state.reading.flags
        if self.search_question:
            await self.search(question.text, state)
        for _ in range(self.max_follow_ups):
            state.transcript += await self.generate_next(question, state)
            written = state.transcript.rpartition(ANSWERED)[2]
            follow_up, text = text_after_label("Follow-up", written), text_after_label("Final answer", written)
            if text or not follow_up or follow_up in follow_ups:
                flags["repeated_follow_up"] += not text and follow_up in follow_ups
                flags["unreadable_reply"] += not text and not follow_up
                break
            follow_ups.append(follow_up)
            await self.search(follow_up, state)
            state.transcript += ANSWERED
        if not text:
            flags["forced_answer"] += 1
            state.transcript = state.transcript.removesuffix(ANSWERED) + CONCLUDED
            text = (await self.generate_next(question, state)).strip().partition("\n")[0]
            state.transcript += f" {text}"
        flags["empty_answer"] += not text
        notes = {"transcript": state.transcript.strip(), "follow_ups": follow_ups}
        return state.reading.answer(text, state.passages.values(), notes, {"follow_ups": len(follow_ups)})

    async def search(self, query: str, state: SelfAskState) -> None:
        state.searches.append(await Search(query, self.passages))
        state.reading.flags["empty_retrieval"] += not state.searches[-1]

    async def generate_next(self, question: Question, state: SelfAskState) -> str:
        """Generate the continuation of the transcript, up to the next intermediate answer."""

        def prompt(shown: tuple[Passage, ...]) -> Prompt:
            ids = {passage.id for passage in shown}
            passages = add_pinned(question, state.passages.values())
            return render(
                "self_ask/ask",
                examples=self.examples,
                passages=passages_text(passage for passage in passages if passage.id in ids),
                question=question.text,
                transcript=state.transcript,
            )

        stop = (ANSWERED.lstrip("\n"), "\nPassages:")
        ranked = add_pinned(question, merge_rankings(state.searches))
        return (await state.reading.generate(prompt, ranked, self.max_tokens, stop)).text.rstrip()
