"""ReAct (Yao et al., ICLR 2023), as a baseline of KnowTrace (Appendix C).

Stages, until the model finishes: thought → action → observation. An action searches (the observation is the passages
found) or finishes with an answer.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from kgqa.calls import CountTokens, Generate, Search
from kgqa.constraints import Count
from kgqa.methods.steps.examples import Pooled
from kgqa.methods.steps.reader import passages_text, with_pinned
from kgqa.methods.steps.replies import counted
from kgqa.prompting import render
from kgqa.protocols import Need
from kgqa.types import Answer, Passage, Question

ACTION = re.compile(r"^Action \d+:[^\S\n]*(Search|Finish)\[(.*)\][^\S\n]*$", flags=re.MULTILINE | re.IGNORECASE)


@dataclass(frozen=True)
class ReAct(Pooled):
    """Fields as in conf/method/react.yaml, which cites the source of each value."""

    passages: Count
    max_steps: Count
    max_step_tokens: Count

    uses: ClassVar[frozenset[Need]] = frozenset({"model", "search"})

    async def answer(self, question: Question) -> Answer:
        """Evidence: all passages observed, first observed first. Notes: the transcript and the queries.

        Flags: `forced_answer` where `max_steps` were not enough, `prompted_action` for each thought that came without
        an action, `unreadable_action` for each step without one that can be carried out even so (the observation says
        it), `repeated_search` for each that is stopped for asking what was asked before, `empty_retrieval`,
        `cut_reply`, `empty_answer`.
        """
        flags, seen, queries = Counter[str](), dict[str, Passage](), list[str]()
        transcript, answer = "", None
        for number in range(1, self.max_steps + 1):
            transcript += f"\nThought {number}:"
            written = await self.step(question, transcript, number, flags)
            transcript += written
            kind, argument = read_action(written)
            if kind == "finish":
                answer = argument
                break
            observed = "This action cannot be carried out. Use Search[...] or Finish[...]."
            if kind == "search" and argument not in queries:
                queries.append(argument)
                passages = await Search(argument, self.passages)
                seen |= {passage.id: passage for passage in passages}
                flags["empty_retrieval"] += not passages
                observed = passages_text(passages) or "Nothing was found."
            elif kind == "search":
                flags["repeated_search"] += 1
                observed = "This was searched for already, see above."
            else:
                flags["unreadable_action"] += 1
            transcript += f"\nObservation {number}: {observed}"
        if answer is None:
            flags["forced_answer"] += 1
            transcript += f"\nThought {self.max_steps + 1}: I have to answer now.\nAction {self.max_steps + 1}: Finish["
            written = await self.go_on(question, transcript, flags)
            answer = re.split(r"[\]\n]", written.strip())[0].strip()
        flags["empty_answer"] += not answer
        context = passages_text(with_pinned(question, seen.values()))
        return Answer(
            answer,
            tuple(seen),
            context_tokens=await CountTokens(context) if context else 0,
            flags=counted(**flags),
            figures={"searches": len(queries)},
            notes={"transcript": transcript.strip(), "queries": queries},
        )

    async def step(self, question: Question, transcript: str, number: int, flags: Counter[str]) -> str:
        """Thought and action. Of a thought alone the first line is kept and its action asked for (released code)."""
        written = await self.go_on(question, transcript, flags)
        if read_action(written)[0]:
            return written
        flags["prompted_action"] += 1
        first_line = written.strip().partition("\n")[0]
        thought = f" {first_line}\nAction {number}:"
        return thought + await self.go_on(question, transcript + thought, flags, stop="\n")

    async def go_on(self, question: Question, transcript: str, flags: Counter[str], stop: str = "\nObservation") -> str:
        """What the model writes next, up to `stop`."""
        prompt = render(
            "react/step",
            examples=self.examples,
            pinned=passages_text(question.pinned),
            question=question.text,
            transcript=transcript.strip(),
        )
        reply = await Generate(prompt, self.max_step_tokens, stop=(stop, "\nQuestion:", "\nPassages:"))
        flags["cut_reply"] += reply.finish == "length"
        return f"{'' if reply.text.startswith(' ') else ' '}{reply.text.rstrip()}"


def read_action(step: str) -> tuple[str, str]:
    """The first action of a step as ("search" | "finish", what its brackets hold); ("", "") where there is none."""
    action = ACTION.search(step)
    argument = action.group(2).strip() if action else ""
    return (action.group(1).lower(), argument) if action and argument else ("", "")
