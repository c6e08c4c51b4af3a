"""Iter-RetGen (Shao et al., Findings of EMNLP 2023), as a baseline of KnowTrace (Appendix C).

Stages, `iterations` times: retrieve by the previous generation and the question → read the passages and write a chain
of thought with an answer. The last generation's answer counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kgqa.calls import CountTokens, Generate, Search
from kgqa.constraints import Count
from kgqa.methods.steps.examples import Pooled
from kgqa.methods.steps.reader import passages_text, with_pinned
from kgqa.methods.steps.replies import concluded, counted, cut
from kgqa.prompting import render
from kgqa.protocols import Need
from kgqa.types import Answer, Completion, Passage, Question


@dataclass(frozen=True)
class IterRetGen(Pooled):
    """Fields as in conf/method/iter_retgen.yaml, which cites the source of each value."""

    iterations: Count
    passages: Count
    max_tokens: Count

    uses: ClassVar[frozenset[Need]] = frozenset({"model", "search"})

    async def answer(self, question: Question) -> Answer:
        """Evidence: the last iteration's passages, then those of earlier ones. Notes: query and generation of each.

        Flags: `no_answer_marker` where the last generation has no line "Answer:" (its last line is taken),
        `empty_retrieval`, `cut_reply`, `empty_answer`.
        """
        query, rounds, replies = question.text, list[tuple[str, tuple[Passage, ...]]](), list[Completion]()
        tokens = 0
        for _ in range(self.iterations):
            passages = await Search(query, self.passages)
            context = passages_text(with_pinned(question, passages))
            tokens += await CountTokens(context) if context else 0
            prompt = render("iter_retgen/answer", examples=self.examples, passages=context, question=question.text)
            replies.append(await Generate(prompt, self.max_tokens, stop=("\nPassages:",)))
            rounds.append((query, passages))
            query = f"{replies[-1].text.strip()} {question.text}".strip()  # the generation first: Shao et al., §3.2
        text, marked = concluded(replies[-1].text)
        return Answer(
            text,
            tuple(dict.fromkeys(passage.id for _, passages in reversed(rounds) for passage in passages)),
            context_tokens=tokens,
            flags=counted(
                no_answer_marker=not marked,
                empty_retrieval=sum(not passages for _, passages in rounds),
                cut_reply=cut(replies),
                empty_answer=not text,
            ),
            notes={"generations": [reply.text for reply in replies], "queries": [query for query, _ in rounds]},
        )
