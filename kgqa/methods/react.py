"""ReAct (Yao et al., ICLR 2023), as a baseline of KnowTrace (Appendix C).

Stages, until the model finishes: thought → action → observation. An action searches (the observation is the passages
found) or finishes with an answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from kgqa.calls import Search
from kgqa.constraints import Count
from kgqa.methods.steps.examples import Pooled
from kgqa.methods.steps.fitting import Reading, best_first
from kgqa.methods.steps.reader import passages_text, with_pinned
from kgqa.methods.steps.replies import counted
from kgqa.prompting import render
from kgqa.protocols import Need
from kgqa.types import Answer, Passage, Prompt, Question

ACTION = re.compile(r"^Action \d+:[^\S\n]*(Search|Finish)\[(.*)\][^\S\n]*$", flags=re.MULTILINE | re.IGNORECASE)


NOTHING = "Nothing was found."


@dataclass(slots=True)
class Course:
    """The transcript so far: what was written, and the passages of each observation that shows some."""

    parts: list[str | tuple[Passage, ...]] = field(default_factory=list)
    reading: Reading = field(default_factory=Reading)

    @property
    def found(self) -> list[tuple[Passage, ...]]:
        return [part for part in self.parts if not isinstance(part, str)]

    def text(self, shown: Iterable[Passage]) -> str:
        """With these of the passages alone."""
        ids = {passage.id for passage in shown}

        def told(part: str | tuple[Passage, ...]) -> str:
            return part if isinstance(part, str) else passages_text(p for p in part if p.id in ids) or NOTHING

        return "".join(map(told, self.parts)).strip()


@dataclass(frozen=True)
class ReAct(Pooled):
    """Fields as in conf/method/react.yaml, which cites the source of each value."""

    passages: Count
    max_steps: Count
    at_limit: Literal["empty", "answer"]
    max_step_tokens: Count

    uses: ClassVar[frozenset[Need]] = frozenset({"model", "search"})

    async def answer(self, question: Question) -> Answer:
        """Evidence: all passages observed, first observed first. Notes: the transcript and the queries. Figures:
        searches, and passage_tokens (#Tok of KnowTrace's Table 2).

        Flags: `unfinished` where `max_steps` were not enough, then `forced_answer` if one was asked for even so
        (`at_limit=answer`); `prompted_action` for each thought that came without an action, `unreadable_action` for
        each step without one that can be carried out even so (the observation says it), `repeated_search` for each
        that is stopped for asking what was asked before, `empty_retrieval`, `passages_dropped`, `cut_reply`,
        `empty_answer`.
        """
        course, queries, answer = Course(), list[str](), None
        flags = course.reading.flags
        for number in range(1, self.max_steps + 1):
            course.parts.append(f"\nThought {number}:")
            written = await self.step(question, course, number)
            kind, argument = read_action(written)
            if kind == "finish":
                answer = argument
                break
            course.parts.append(f"\nObservation {number}: ")
            if kind == "search" and argument not in queries:
                queries.append(argument)
                course.parts.append(await Search(argument, self.passages))
                flags["empty_retrieval"] += not course.parts[-1]
            elif kind == "search":
                flags["repeated_search"] += 1
                course.parts.append("This was searched for already, see above.")
            else:
                flags["unreadable_action"] += 1
                course.parts.append("This action cannot be carried out. Use Search[...] or Finish[...].")
        flags["unfinished"] += answer is None
        if answer is None and self.at_limit == "answer":
            flags["forced_answer"] += 1
            last = self.max_steps + 1
            course.parts.append(f"\nThought {last}: I have to answer now.\nAction {last}: Finish[")
            answer = re.split(r"[\]\n]", (await self.go_on(question, course)).strip())[0].strip()
        flags["empty_answer"] += not answer
        passages = {passage.id: passage for passages in course.found for passage in passages}
        return Answer(
            answer or "",
            tuple(passages),
            context_tokens=course.reading.last,
            flags=counted(**flags),
            figures={"searches": len(queries), "passage_tokens": course.reading.tokens},
            notes={"transcript": course.text(passages.values()), "queries": queries},
        )

    async def step(self, question: Question, course: Course, number: int) -> str:
        """Thought and action. Of a thought alone the first line is kept and its action asked for (released code)."""
        written = await self.go_on(question, course)
        if not read_action(written)[0]:
            course.reading.flags["prompted_action"] += 1
            first_line = written.strip().partition("\n")[0]
            thought = f" {first_line}\nAction {number}:"
            course.parts.append(thought)
            written = await self.go_on(question, course, stop="\n")
            course.parts.append(written)
            return thought + written
        course.parts.append(written)
        return written

    async def go_on(self, question: Question, course: Course, stop: str = "\nObservation") -> str:
        """What the model writes next, up to `stop`."""

        def prompt(shown: tuple[Passage, ...]) -> Prompt:
            return render(
                "react/step",
                examples=self.examples,
                pinned=passages_text(passage for passage in question.pinned if passage in shown),
                question=question.text,
                transcript=course.text(shown),
            )

        ranked = with_pinned(question, best_first(course.found))
        stops = (stop, "\nQuestion:", "\nPassages:")
        reply = await course.reading.ask(prompt, ranked, self.max_step_tokens, stops)
        return f"{'' if reply.text.startswith(' ') else ' '}{reply.text.rstrip()}"


def read_action(step: str) -> tuple[str, str]:
    """The first action of a step as ("search" | "finish", what its brackets hold); ("", "") where there is none."""
    action = ACTION.search(step)
    argument = action.group(2).strip() if action else ""
    return (action.group(1).lower(), argument) if action and argument else ("", "")
