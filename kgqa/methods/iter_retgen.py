"""Iter-RetGen (Shao et al., Findings of EMNLP 2023), as a baseline of KnowTrace (Appendix C).

Stages, `iterations` times: retrieve by the previous generation and the question → read the passages and write a chain
of thought with an answer. The last generation's answer counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kgqa.calls import Search
from kgqa.constraints import Count
from kgqa.methods.steps.examples import Pooled
from kgqa.methods.steps.fitting import Reading
from kgqa.methods.steps.reader import passages_text, with_pinned
from kgqa.methods.steps.replies import concluded, counted
from kgqa.prompting import render
from kgqa.protocols import Need
from kgqa.types import Answer, Completion, Passage, Prompt, Question


@dataclass(frozen=True)
class IterRetGen(Pooled):
    """Fields as in conf/method/iter_retgen.yaml, which cites the source of each value."""

    iterations: Count
    passages: Count
    max_tokens: Count

    uses: ClassVar[frozenset[Need]] = frozenset({"model", "search"})

    async def answer(self, question: Question) -> Answer:
        """Evidence: the last iteration's passages, then those of earlier ones. Notes: query and generation of each.
        Figures: passage_tokens (#Tok of KnowTrace's Table 2).

        Flags: `no_answer_marker` where the last generation has no line "Answer:" (its last line is taken),
        `empty_retrieval`, `passages_dropped`, `cut_reply`, `empty_answer`.
        """
        query, rounds, replies = question.text, list[tuple[str, tuple[Passage, ...]]](), list[Completion]()
        reading = Reading()

        def prompt(shown: tuple[Passage, ...]) -> Prompt:
            context = passages_text(shown)
            return render("iter_retgen/answer", examples=self.examples, passages=context, question=question.text)

        for _ in range(self.iterations):
            passages = await Search(query, self.passages)
            shown = with_pinned(question, passages)
            replies.append(await reading.ask(prompt, shown, self.max_tokens, stop=("\nPassages:",)))
            rounds.append((query, passages))
            query = f"{replies[-1].text.strip()} {question.text}".strip()  # the generation first: Shao et al., §3.2
        text, marked = concluded(replies[-1].text)
        reading.flags.update({"no_answer_marker": not marked, "empty_answer": not text})
        reading.flags["empty_retrieval"] += sum(not passages for _, passages in rounds)
        return Answer(
            text,
            tuple(dict.fromkeys(passage.id for _, passages in reversed(rounds) for passage in passages)),
            context_tokens=reading.last,
            flags=counted(**reading.flags),
            figures={"passage_tokens": reading.tokens},
            notes={"generations": [reply.text for reply in replies], "queries": [query for query, _ in rounds]},
        )
