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
from kgqa.methods.steps.examples import PooledFewShot
from kgqa.methods.steps.reader import ReadingLog, add_pinned, merge_rankings, passages_text
from kgqa.prompting import render
from kgqa.protocols import Need
from kgqa.types import Answer, Passage, Prompt, Question
from kgqa.util.validators import Count

ACTION = re.compile(r"^Action \d+:[^\S\n]*(Search|Finish)\[(.*)\][^\S\n]*$", flags=re.MULTILINE | re.IGNORECASE)

NOTHING = "Nothing was found."


@dataclass(slots=True)
class Transcript:
    """The texts so far, and the passages of each observation."""

    parts: list[str | tuple[Passage, ...]] = field(default_factory=list)
    reading: ReadingLog = field(default_factory=ReadingLog)

    @property
    def observations(self) -> list[tuple[Passage, ...]]:
        return [part for part in self.parts if not isinstance(part, str)]

    def text(self, shown: Iterable[Passage]) -> str:
        """Return the transcript with only these passages."""
        ids = {passage.id for passage in shown}

        def show(part: str | tuple[Passage, ...]) -> str:
            return part if isinstance(part, str) else passages_text(p for p in part if p.id in ids) or NOTHING

        return "".join(map(show, self.parts)).strip()


@dataclass(frozen=True)
class ReAct(PooledFewShot):
    """The method, with the fields of conf/method/react.yaml."""

    passages: Count
    max_steps: Count
    at_limit: Literal["empty", "answer"]
    max_step_tokens: Count

    uses: ClassVar[frozenset[Need]] = frozenset({"model", "search"})

    async def answer(self, question: Question) -> Answer:
        """Return alternate thoughts and searches until the model finishes.

        Evidence: all observed passages, first observed first. Notes: the transcript and the queries. Figures: searches,
        and passage_tokens (#Tok of KnowTrace's Table 2).

        Flags: `unfinished` (not finished within `max_steps`), `forced_answer` (requested then with `at_limit=answer`),
        `prompted_action` (per thought without an action), `unreadable_action` (per step still without one, which the
        observation reports), `repeated_search` (per query that was searched before), `empty_retrieval`,
        `passages_dropped`, `cut_reply`, `empty_answer`.
        """
        transcript, queries, answer = Transcript(), list[str](), None
        flags = transcript.reading.flags
        for number in range(1, self.max_steps + 1):
            transcript.parts.append(f"\nThought {number}:")
            written = await self.step(question, transcript, number)
            kind, argument = read_action(written)
            if kind == "finish":
                answer = argument
                break
            transcript.parts.append(f"\nObservation {number}: ")
            if kind == "search" and argument not in queries:
                queries.append(argument)
                transcript.parts.append(await Search(argument, self.passages))
                flags["empty_retrieval"] += not transcript.parts[-1]
            elif kind == "search":
                flags["repeated_search"] += 1
                transcript.parts.append("This was searched for already, see above.")
            else:
                flags["unreadable_action"] += 1
                transcript.parts.append("This action cannot be carried out. Use Search[...] or Finish[...].")
        flags["unfinished"] += answer is None
        if answer is None and self.at_limit == "answer":
            flags["forced_answer"] += 1
            last = self.max_steps + 1
            transcript.parts.append(f"\nThought {last}: I have to answer now.\nAction {last}: Finish[")
            answer = re.split(r"[\]\n]", (await self.generate(question, transcript)).strip())[0].strip()
        flags["empty_answer"] += not answer
        passages = {passage.id: passage for passages in transcript.observations for passage in passages}
        notes = {"transcript": transcript.text(passages.values()), "queries": queries}
        return transcript.reading.answer(answer or "", passages.values(), notes, {"searches": len(queries)})

    async def step(self, question: Question, transcript: Transcript, number: int) -> str:
        """Generate a thought and an action. After a thought alone, its action is requested (released code)."""
        written = await self.generate(question, transcript)
        if not read_action(written)[0]:
            transcript.reading.flags["prompted_action"] += 1
            first_line = written.strip().partition("\n")[0]
            thought = f" {first_line}\nAction {number}:"
            transcript.parts.append(thought)
            written = await self.generate(question, transcript, stop="\n")
            transcript.parts.append(written)
            return thought + written
        transcript.parts.append(written)
        return written

    async def generate(self, question: Question, transcript: Transcript, stop: str = "\nObservation") -> str:
        """Generate the continuation of the transcript, up to `stop`."""

        def prompt(shown: tuple[Passage, ...]) -> Prompt:
            return render(
                "react/step",
                examples=self.examples,
                pinned=passages_text(passage for passage in question.pinned if passage in shown),
                question=question.text,
                transcript=transcript.text(shown),
            )

        ranked = add_pinned(question, merge_rankings(transcript.observations))
        stops = (stop, "\nQuestion:", "\nPassages:")
        reply = await transcript.reading.generate(prompt, ranked, self.max_step_tokens, stops)
        return f"{'' if reply.text.startswith(' ') else ' '}{reply.text.rstrip()}"


def read_action(step: str) -> tuple[str, str]:
    """Return the first action of a step as ("search" | "finish", the text in brackets), or ("", "")."""
    action = ACTION.search(step)
    argument = action.group(2).strip() if action else ""
    return (action.group(1).lower(), argument) if action and argument else ("", "")
