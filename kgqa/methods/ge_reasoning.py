"""GE-Reasoning (Park et al., 2023), as a baseline of KnowTrace (§2 and Appendix A describe it; Appendix C does not).

Stages: parse the question into a graph of triples with unknowns (?1, ?2, …) → round by round, retrieve for every
triple with one unknown left and fill it from the passages → reason over the filled graph and answer.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar

from kgqa.calls import CountTokens, Generate, Search, gather
from kgqa.constraints import Count
from kgqa.methods.steps.examples import Pooled
from kgqa.methods.steps.reader import passages_text, with_pinned
from kgqa.methods.steps.replies import concluded, counted
from kgqa.prompting import render
from kgqa.protocols import Need
from kgqa.triples import read_triples
from kgqa.types import Answer, Passage, Question

UNKNOWN = re.compile(r"\?\d+")
Masked = tuple[str, str, str]


@dataclass(slots=True)
class Filling:
    """How far the question's graph is filled."""

    graph: list[Masked]
    known: dict[str, str] = field(default_factory=dict)  # unknown → what fills it
    tried: set[Masked] = field(default_factory=set)  # as they were filled then
    passages: dict[str, Passage] = field(default_factory=dict)
    flags: Counter[str] = field(default_factory=Counter)

    def filled(self, triple: Masked) -> Masked:
        head, relation, tail = (UNKNOWN.sub(lambda m: self.known.get(m[0], m[0]), part) for part in triple)
        return head, relation, tail

    def open(self) -> list[Masked]:
        """Triples with exactly one unknown left, filled as far as they are, one for each unknown; none is asked twice,
        so where the first does not tell, the next that holds the unknown has its turn."""
        by_unknown: dict[str, Masked] = {}
        for triple in map(self.filled, self.graph):
            left = {unknown for part in triple for unknown in UNKNOWN.findall(part)}
            if len(left) == 1 and triple not in self.tried:
                by_unknown.setdefault(left.pop(), triple)
        self.tried.update(by_unknown.values())
        return list(by_unknown.values())


@dataclass(frozen=True)
class GEReasoning(Pooled):
    """Fields as in conf/method/ge_reasoning.yaml, which cites the source of each value."""

    passages: Count
    max_rounds: Count
    max_graph_tokens: Count
    max_fill_tokens: Count
    max_tokens: Count

    uses: ClassVar[frozenset[Need]] = frozenset({"model", "search"})

    async def answer(self, question: Question) -> Answer:
        """Evidence: all passages, first retrieved first. Notes: the graph as parsed and as filled.

        Flags: `malformed_triple`, `empty_graph`, `unfilled` for each triple that still has an unknown at the end,
        `no_answer_marker` (the last line is taken), `empty_retrieval`, `cut_reply`, `empty_answer`.
        """
        filling = await self.parse(question)
        for _ in range(self.max_rounds):
            masked = filling.open()
            if not masked:
                break
            fills = await gather(*(self.fill(question, triple, filling.flags) for triple in masked))
            filling.passages |= {passage.id: passage for _, passages in fills for passage in passages}
            told = zip(map(unknown_of, masked), fills, strict=True)
            filling.known |= {unknown: value for unknown, (value, _) in told if value}
        filled = [filling.filled(triple) for triple in filling.graph]
        filling.flags["unfilled"] += sum(bool(UNKNOWN.search(" ".join(triple))) for triple in filled)
        prompt = render(
            "ge_reasoning/answer",
            examples=self.examples,
            pinned=passages_text(question.pinned),
            question=question.text,
            graph=filled,
        )
        reply = await Generate(prompt, self.max_tokens, stop=("\nQuestion:", "\nPassages:"))
        text, marked = concluded(reply.text)
        filling.flags.update({"no_answer_marker": not marked, "empty_answer": not text})
        filling.flags["cut_reply"] += reply.finish == "length"
        context = passages_text(with_pinned(question, filling.passages.values()))
        return Answer(
            text,
            tuple(filling.passages),
            context_tokens=await CountTokens(context) if context else 0,
            flags=counted(**filling.flags),
            figures={"triples": len(filling.graph), "filled": len(filling.known)},
            notes={"question_graph": filling.graph, "filled_graph": filled, "thought": reply.text},
        )

    async def parse(self, question: Question) -> Filling:
        pinned = passages_text(question.pinned)
        prompt = render("ge_reasoning/parse", examples=self.examples, pinned=pinned, question=question.text)
        reply = await Generate(prompt, self.max_graph_tokens, stop=("\nQuestion:", "\nPassages:"))
        written = read_triples(reply.text)
        filling = Filling(list(dict.fromkeys(written.triples)))
        filling.flags.update({"malformed_triple": written.malformed, "empty_graph": not filling.graph})
        filling.flags["cut_reply"] += reply.finish == "length"
        return filling

    async def fill(self, question: Question, triple: Masked, flags: Counter[str]) -> tuple[str, tuple[Passage, ...]]:
        """What the passages say the triple's unknown is, "" where they do not, and the passages."""
        passages = await Search(" ".join(UNKNOWN.sub(" ", " ".join(triple)).split()), self.passages)
        flags["empty_retrieval"] += not passages
        context = passages_text(with_pinned(question, passages))
        prompt = render("ge_reasoning/fill", examples=self.examples, passages=context, triple=triple)
        reply = await Generate(prompt, self.max_fill_tokens, stop=("\n",))
        value = reply.text.strip().rstrip(".")
        return "" if value.casefold() == "unknown" or UNKNOWN.search(value) else value, passages


def unknown_of(triple: Masked) -> str:
    unknown: str = UNKNOWN.findall(" ".join(triple))[0]
    return unknown
