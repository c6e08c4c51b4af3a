"""GE-Reasoning (Park et al., 2023), as a baseline of KnowTrace (§2 and Appendix A describe it; Appendix C does not).

Stages: parse the question into a graph of triples with unknowns (?1, ?2, …) → round by round, write a sub-question for
every triple with one unknown left, retrieve by it, answer it from the passages and keep the answer if it is sure enough
→ reason over the filled graph and the sub-questions and answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from kgqa.calls import CountTokens, Generate, Search, gather
from kgqa.constraints import Count
from kgqa.methods.steps.examples import Pooled
from kgqa.methods.steps.fitting import Reading
from kgqa.methods.steps.reader import passages_text, with_pinned
from kgqa.methods.steps.replies import MAX_SCORE_TOKENS, Score, concluded, counted, scored
from kgqa.prompting import render
from kgqa.protocols import Need
from kgqa.triples import read_triples
from kgqa.types import Answer, Passage, Prompt, Question

UNKNOWN = re.compile(r"\?\d+")
Masked = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Fill:
    """An attempt at the one unknown of a triple."""

    triple: Masked
    question: str  # the sub-question; "" where none was written
    passages: tuple[Passage, ...]
    value: str  # "" where the passages do not tell
    confidence: float | None  # None: not asked for, or unreadable
    kept: bool


@dataclass(slots=True)
class Filling:
    """How far the question's graph is filled."""

    graph: list[Masked]
    known: dict[str, str] = field(default_factory=dict)  # unknown → what fills it
    tried: set[Masked] = field(default_factory=set)  # as they were filled then
    passages: dict[str, Passage] = field(default_factory=dict)
    fills: list[Fill] = field(default_factory=list)
    reading: Reading = field(default_factory=Reading)

    def filled(self, triple: Masked) -> Masked:
        head, relation, tail = (UNKNOWN.sub(lambda m: self.known.get(m[0], m[0]), part) for part in triple)
        return head, relation, tail

    def take(self, fill: Fill) -> None:
        self.fills.append(fill)
        self.passages |= {passage.id: passage for passage in fill.passages}
        if fill.kept:
            self.known[unknown_of(fill.triple)] = fill.value

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
    rewrite: bool
    threshold: Score
    max_rounds: Count
    max_graph_tokens: Count
    max_question_tokens: Count
    max_fill_tokens: Count
    max_tokens: Count

    uses: ClassVar[frozenset[Need]] = frozenset({"model", "search"})

    async def answer(self, question: Question) -> Answer:
        """Evidence: all passages, first retrieved first. `context_tokens`: the filled graph, which the answer rests on.
        Notes: the graph as parsed and as filled. Figures: triples, filled, passage_tokens (#Tok of KnowTrace's
        Table 2).

        Flags: `malformed_triple`, `empty_graph`, `unsure_fill` for each answer below the threshold and
        `unreadable_score` for each whose confidence cannot be read (neither is kept), `unfilled` for each triple that
        still has an unknown at the end, `empty_question` (the triple's own words are searched), `no_answer_marker`
        (the last line is taken), `empty_retrieval`, `passages_dropped`, `cut_reply`, `empty_answer`.
        """
        filling = await self.parse(question)
        flags = filling.reading.flags
        for _ in range(self.max_rounds):
            masked = filling.open()
            if not masked:
                break
            for fill in await gather(*(self.fill(question, triple, filling.reading) for triple in masked)):
                filling.take(fill)
        filled = [filling.filled(triple) for triple in filling.graph]
        flags["unfilled"] += sum(bool(UNKNOWN.search(" ".join(triple))) for triple in filled)
        graph = [f"<{'; '.join(triple)}>" for triple in filled]
        prompt = render(
            "ge_reasoning/answer",
            examples=self.examples,
            pinned=passages_text(question.pinned),
            question=question.text,
            graph=graph,
            rewrite=self.rewrite,
            fills=[fill for fill in filling.fills if fill.kept and fill.question],
        )
        reply = await Generate(prompt, self.max_tokens, stop=("\nQuestion:", "\nPassages:"))
        text, marked = concluded(reply.text)
        flags.update({"no_answer_marker": not marked, "empty_answer": not text})
        flags["cut_reply"] += reply.finish == "length"
        return Answer(
            text,
            tuple(filling.passages),
            context_tokens=await CountTokens("\n".join(graph)) if graph else 0,
            flags=counted(**flags),
            figures={"triples": len(graph), "filled": len(filling.known), "passage_tokens": filling.reading.tokens},
            notes={
                "question_graph": filling.graph,
                "filled_graph": filled,
                "fills": [(fill.question, fill.value, fill.confidence) for fill in filling.fills],
                "thought": reply.text,
            },
        )

    async def parse(self, question: Question) -> Filling:
        pinned = passages_text(question.pinned)
        prompt = render("ge_reasoning/parse", examples=self.examples, pinned=pinned, question=question.text)
        reply = await Generate(prompt, self.max_graph_tokens, stop=("\nQuestion:", "\nPassages:"))
        written = read_triples(reply.text)
        filling = Filling(list(dict.fromkeys(written.triples)))
        cut = reply.finish == "length"
        filling.reading.flags.update(malformed_triple=written.malformed, empty_graph=not filling.graph, cut_reply=cut)
        return filling

    async def fill(self, question: Question, triple: Masked, reading: Reading) -> Fill:
        """Retrieve for the triple and say what its unknown is."""
        asked = await self.sub_question(question, triple, reading) if self.rewrite else ""
        query = asked or " ".join(UNKNOWN.sub(" ", " ".join(triple)).split())
        passages = await Search(query, self.passages)
        reading.flags["empty_retrieval"] += not passages
        values = {"triple": triple, "asked": asked, "examples": self.examples}
        shown = with_pinned(question, passages)
        reply = await reading.ask(_showing("ge_reasoning/fill", values), shown, self.max_fill_tokens, stop=("\n",))
        value = reply.text.strip().rstrip(".")
        if not value or value.casefold() == "unknown" or UNKNOWN.search(value):
            return Fill(triple, asked, passages, "", None, kept=False)
        if not self.threshold:
            return Fill(triple, asked, passages, value, None, kept=True)
        judged = _showing("ge_reasoning/confidence", {**values, "value": value})
        confidence = scored((await reading.ask(judged, shown, MAX_SCORE_TOKENS)).text)
        kept = confidence is not None and confidence >= self.threshold
        reading.flags["unreadable_score" if confidence is None else "unsure_fill"] += not kept
        return Fill(triple, asked, passages, value, confidence, kept)

    async def sub_question(self, question: Question, triple: Masked, reading: Reading) -> str:
        prompt = render("ge_reasoning/ask", examples=self.examples, question=question.text, triple=triple)
        reply = await Generate(prompt, self.max_question_tokens, stop=("\n",))
        reading.flags["cut_reply"] += reply.finish == "length"
        reading.flags["empty_question"] += not reply.text.strip()
        return reply.text.strip()


def _showing(template: str, values: Mapping[str, object]) -> Callable[[tuple[Passage, ...]], Prompt]:
    return lambda shown: render(template, passages=passages_text(shown), **values)


def unknown_of(triple: Masked) -> str:
    unknown: str = UNKNOWN.findall(" ".join(triple))[0]
    return unknown
