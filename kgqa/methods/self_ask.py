"""Self-Ask (Press et al., Findings of EMNLP 2023) with retrieval, as a baseline of KnowTrace (Appendix C).

Stages: retrieve by the question → the model asks a follow-up question → retrieve by it → the model gives its
intermediate answer and asks on, or concludes. All passages stand before the question (Yoran et al., EMNLP 2023).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from kgqa.calls import Search
from kgqa.constraints import Count
from kgqa.methods.steps.examples import Pooled
from kgqa.methods.steps.fitting import Reading, best_first
from kgqa.methods.steps.reader import passages_text, with_pinned
from kgqa.methods.steps.replies import counted, labelled
from kgqa.prompting import render
from kgqa.protocols import Need
from kgqa.types import Answer, Passage, Prompt, Question

ANSWERED = "\nIntermediate answer:"
CONCLUDED = "\nFinal answer:"


@dataclass(slots=True)
class Course:
    """What was found and written so far."""

    found: list[tuple[Passage, ...]] = field(default_factory=list)  # by search
    transcript: str = "Follow-up:"
    reading: Reading = field(default_factory=Reading)

    @property
    def passages(self) -> dict[str, Passage]:
        """First found first."""
        return {passage.id: passage for passages in self.found for passage in passages}


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
        Figures: follow_ups, and passage_tokens (#Tok of KnowTrace's Table 2).

        Flags: `forced_answer` where no conclusion came within `max_follow_ups` questions, or the reply was neither a
        question nor a conclusion (`unreadable_reply`), or a question came again (`repeated_follow_up`);
        `empty_retrieval`, `passages_dropped`, `cut_reply`, `empty_answer`.
        """
        course, follow_ups, text = Course(), list[str](), ""
        flags = course.reading.flags
        if self.search_question:
            await self.search(question.text, course)
        for _ in range(self.max_follow_ups):
            course.transcript += await self.go_on(question, course)
            written = course.transcript.rpartition(ANSWERED)[2]
            follow_up, text = labelled("Follow-up", written), labelled("Final answer", written)
            if text or not follow_up or follow_up in follow_ups:
                flags["repeated_follow_up"] += not text and follow_up in follow_ups
                flags["unreadable_reply"] += not text and not follow_up
                break
            follow_ups.append(follow_up)
            await self.search(follow_up, course)
            course.transcript += ANSWERED
        if not text:
            flags["forced_answer"] += 1
            course.transcript = course.transcript.removesuffix(ANSWERED) + CONCLUDED
            text = (await self.go_on(question, course)).strip().partition("\n")[0]
            course.transcript += f" {text}"
        flags["empty_answer"] += not text
        return Answer(
            text,
            tuple(course.passages),
            context_tokens=course.reading.last,
            flags=counted(**flags),
            figures={"follow_ups": len(follow_ups), "passage_tokens": course.reading.tokens},
            notes={"transcript": course.transcript.strip(), "follow_ups": follow_ups},
        )

    async def search(self, query: str, course: Course) -> None:
        course.found.append(await Search(query, self.passages))
        course.reading.flags["empty_retrieval"] += not course.found[-1]

    async def go_on(self, question: Question, course: Course) -> str:
        """What the model writes after the transcript, up to where the next intermediate answer would stand."""

        def prompt(shown: tuple[Passage, ...]) -> Prompt:
            ids = {passage.id for passage in shown}
            given = with_pinned(question, course.passages.values())
            return render(
                "self_ask/ask",
                examples=self.examples,
                passages=passages_text(passage for passage in given if passage.id in ids),
                question=question.text,
                transcript=course.transcript,
            )

        stop = (ANSWERED.lstrip("\n"), "\nPassages:")
        ranked = with_pinned(question, best_first(course.found))
        return (await course.reading.ask(prompt, ranked, self.max_tokens, stop)).text.rstrip()
