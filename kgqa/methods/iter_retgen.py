"""Iter-RetGen (Shao et al., Findings of EMNLP 2023), as a baseline of KnowTrace (Appendix C).

Stages, `iterations` times: retrieve by the previous generation and the question → read the passages and write a chain
of thought with an answer. The last generation's answer counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kgqa.calls import Search
from kgqa.methods.steps.examples import PooledFewShot
from kgqa.methods.steps.reader import ReadingLog, add_pinned, passages_text
from kgqa.methods.steps.replies import read_conclusion
from kgqa.prompting import render
from kgqa.protocols import Need
from kgqa.types import Answer, Completion, Passage, Prompt, Question
from kgqa.util.validators import Count


@dataclass(frozen=True)
class IterRetGen(PooledFewShot):
    """The method, with the fields of conf/method/iter_retgen.yaml."""

    iterations: Count
    passages: Count
    max_tokens: Count

    uses: ClassVar[frozenset[Need]] = frozenset({"model", "search"})

    async def answer(self, question: Question) -> Answer:
        """Retrieve and generate in turns.

        Evidence: the passages of the last iteration, then of earlier ones. Notes: query and generation of each
        iteration. Figures: passage_tokens (#Tok of KnowTrace's Table 2).

        Flags: `no_answer_marker` (no line "Answer:" in the last generation, so its last line is the answer),
        `empty_retrieval`, `passages_dropped`, `cut_reply`, `empty_answer`.
        """
        query, rounds, replies = question.text, list[tuple[str, tuple[Passage, ...]]](), list[Completion]()
        reading = ReadingLog()

        def prompt(shown: tuple[Passage, ...]) -> Prompt:
            context = passages_text(shown)
            return render("iter_retgen/answer", examples=self.examples, passages=context, question=question.text)

        for _ in range(self.iterations):
            passages = await Search(query, self.passages)
            shown = add_pinned(question, passages)
            replies.append(await reading.generate(prompt, shown, self.max_tokens, stop=("\nPassages:",)))
            rounds.append((query, passages))
            query = f"{replies[-1].text.strip()} {question.text}".strip()  # the generation first: Shao et al., §3.2
        text, marked = read_conclusion(replies[-1].text)
        reading.flags.update({"no_answer_marker": not marked, "empty_answer": not text})
        reading.flags["empty_retrieval"] += sum(not passages for _, passages in rounds)
        evidence = (passage for _, passages in reversed(rounds) for passage in passages)
        notes = {"generations": [reply.text for reply in replies], "queries": [query for query, _ in rounds]}
        return reading.answer(text, evidence, notes)
