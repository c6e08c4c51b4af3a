"""GE-Reasoning (Park et al., 2023), as a baseline of KnowTrace (§2 and Appendix A describe it; Appendix C does not).

Stages: parse the question into a graph of triples with unknowns (?1, ?2, …) → round by round, write a sub-question for
every triple with one unknown left, retrieve by it, answer it from the passages and keep a confident answer
→ reason over the filled graph and the sub-questions and answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from kgqa.calls import CountTokens, Generate, Search, gather
from kgqa.methods.steps.examples import PooledFewShot
from kgqa.methods.steps.reader import ReadingLog, add_pinned, passages_text
from kgqa.methods.steps.replies import MAX_SCORE_TOKENS, Score, read_conclusion, read_score
from kgqa.prompting import render
from kgqa.protocols import Need
from kgqa.types import Answer, Passage, Prompt, Question
from kgqa.util.triples import read_triples
from kgqa.util.validators import Count

UNKNOWN = re.compile(r"\?\d+")
Masked = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class FillAttempt:
    """An attempt at the one unknown of a triple."""

    triple: Masked
    question: str  # the sub-question, or ""
    passages: tuple[Passage, ...]
    value: str  # "" if the passages do not contain it
    confidence: float | None  # None: not requested, or unreadable
    kept: bool


@dataclass(slots=True)
class QuestionGraph:
    """The graph of the question with the values of unknowns so far."""

    graph: list[Masked]
    known: dict[str, str] = field(default_factory=dict)  # unknown → value
    tried: set[Masked] = field(default_factory=set)  # with the values of that time
    passages: dict[str, Passage] = field(default_factory=dict)
    fills: list[FillAttempt] = field(default_factory=list)
    reading: ReadingLog = field(default_factory=ReadingLog)

    def substitute(self, triple: Masked) -> Masked:
        head, relation, tail = (UNKNOWN.sub(lambda m: self.known.get(m[0], m[0]), part) for part in triple)
        return head, relation, tail

    def add(self, fill: FillAttempt) -> None:
        self.fills.append(fill)
        self.passages |= {passage.id: passage for passage in fill.passages}
        if fill.kept:
            self.known[unknown_of(fill.triple)] = fill.value

    def next_triples(self) -> list[Masked]:
        """Return one untried triple per unknown, among those with exactly one unknown left.

        If a triple gives no value, the next one with the same unknown follows in a later round.
        """
        by_unknown: dict[str, Masked] = {}
        for triple in map(self.substitute, self.graph):
            left = {unknown for part in triple for unknown in UNKNOWN.findall(part)}
            if len(left) == 1 and triple not in self.tried:
                by_unknown.setdefault(left.pop(), triple)
        self.tried.update(by_unknown.values())
        return list(by_unknown.values())


@dataclass(frozen=True)
class GEReasoning(PooledFewShot):
    """The method, with the fields of conf/method/ge_reasoning.yaml."""

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
        """Parse the question into a graph, fill its unknowns in rounds, and answer.

        Evidence: all passages, first retrieved first. `context_tokens`: the filled graph. Notes: the graph as parsed
        and as filled. Figures: triples, filled, passage_tokens (#Tok of KnowTrace's
        Table 2).

        Flags: `malformed_triple`, `empty_graph`, `unsure_fill` (answers below the threshold) and `unreadable_score`
        (unreadable confidence), both dropped, `unfilled` (triples with an unknown at the end), `empty_question` (the
        words of the triple are the query), `no_answer_marker` (the last line is the answer), `empty_retrieval`,
        `passages_dropped`, `cut_reply`, `empty_answer`.
        """
        filling = await self.parse(question)
        flags = filling.reading.flags
        for _ in range(self.max_rounds):
            masked = filling.next_triples()
            if not masked:
                break
            for fill in await gather(*(self.fill(question, triple, filling.reading) for triple in masked)):
                filling.add(fill)
        filled = [filling.substitute(triple) for triple in filling.graph]
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
        text, marked = read_conclusion(reply.text)
        flags.update({"no_answer_marker": not marked, "empty_answer": not text})
        flags["cut_reply"] += reply.finish == "length"
        notes = {
            "question_graph": filling.graph,
            "filled_graph": filled,
            "fills": [(fill.question, fill.value, fill.confidence) for fill in filling.fills],
            "thought": reply.text,
        }
        figures = {"triples": len(graph), "filled": len(filling.known)}
        tokens = await CountTokens("\n".join(graph)) if graph else 0
        return filling.reading.answer(text, filling.passages.values(), notes, figures, tokens)

    async def parse(self, question: Question) -> QuestionGraph:
        pinned = passages_text(question.pinned)
        prompt = render("ge_reasoning/parse", examples=self.examples, pinned=pinned, question=question.text)
        reply = await Generate(prompt, self.max_graph_tokens, stop=("\nQuestion:", "\nPassages:"))
        written = read_triples(reply.text)
        filling = QuestionGraph(list(dict.fromkeys(written.triples)))
        cut = reply.finish == "length"
        filling.reading.flags.update(malformed_triple=written.malformed, empty_graph=not filling.graph, cut_reply=cut)
        return filling

    async def fill(self, question: Question, triple: Masked, reading: ReadingLog) -> FillAttempt:
        """Retrieve for the triple and generate the value of its unknown."""
        sub_question = await self.sub_question(question, triple, reading) if self.rewrite else ""
        query = sub_question or " ".join(UNKNOWN.sub(" ", " ".join(triple)).split())
        passages = await Search(query, self.passages)
        reading.flags["empty_retrieval"] += not passages
        values = {"triple": triple, "asked": sub_question, "examples": self.examples}
        shown = add_pinned(question, passages)
        reply = await reading.generate(
            _prompt_with_passages("ge_reasoning/fill", values), shown, self.max_fill_tokens, stop=("\n",)
        )
        value = reply.text.strip().rstrip(".")
        if not value or value.casefold() == "unknown" or UNKNOWN.search(value):
            return FillAttempt(triple, sub_question, passages, "", None, kept=False)
        if not self.threshold:
            return FillAttempt(triple, sub_question, passages, value, None, kept=True)
        rating = _prompt_with_passages("ge_reasoning/confidence", {**values, "value": value})
        confidence = read_score((await reading.generate(rating, shown, MAX_SCORE_TOKENS)).text)
        kept = confidence is not None and confidence >= self.threshold
        reading.flags["unreadable_score" if confidence is None else "unsure_fill"] += not kept
        return FillAttempt(triple, sub_question, passages, value, confidence, kept)

    async def sub_question(self, question: Question, triple: Masked, reading: ReadingLog) -> str:
        prompt = render("ge_reasoning/ask", examples=self.examples, question=question.text, triple=triple)
        reply = await Generate(prompt, self.max_question_tokens, stop=("\n",))
        reading.flags["cut_reply"] += reply.finish == "length"
        reading.flags["empty_question"] += not reply.text.strip()
        return reply.text.strip()


def _prompt_with_passages(template: str, values: Mapping[str, object]) -> Callable[[tuple[Passage, ...]], Prompt]:
    return lambda shown: render(template, passages=passages_text(shown), **values)


def unknown_of(triple: Masked) -> str:
    unknown: str = UNKNOWN.findall(" ".join(triple))[0]
    return unknown
