"""KnowTrace's baselines that reason over a graph of the passages or of the question."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any

from kgqa.calls import CountTokens, gather
from kgqa.methods.steps.examples import PooledFewShot
from kgqa.methods.steps.reader import ReadingLog, passages_text
from kgqa.methods.steps.replies import (
    MAX_SCORE_TOKENS,
    Score,
    bullet_items,
    read_score,
    read_triple_lines,
)
from kgqa.prompting import render
from kgqa.types import Answer, Passage, Question, Triple
from kgqa.util.settings import Setting
from kgqa.util.validators import Count

UNKNOWN = re.compile(r"(?<!\S)\?\w*")  # ?1, ?author or ?
Masked = tuple[str, str, str]


@dataclass(frozen=True)
class SGPrompt(PooledFewShot):
    """SG-Prompt (Li and Du, Findings of EMNLP 2023; KnowTrace, Appendix C).

    Stages: retrieve once by the question → extract a semantic graph (entities and their relations) from all passages →
    reason over passages and graph and answer.
    """

    max_graph_tokens: Annotated[
        Count, Setting("Maximum tokens of the graph.", ours="our choice")
    ] = 512
    max_tokens: Annotated[Count, Setting("Maximum tokens of a reply.", ours="our choice")] = 256

    async def answer(self, question: Question) -> Answer:
        """Extract a graph of the passages and answer from both.

        Evidence: the passages as retrieved. Notes: the graph. Figures: its triples. Flags: those of `ReadingLog`,
        `malformed_triple` and `empty_graph`.
        """
        log = ReadingLog(question)
        passages = await log.search(question.text, self.passages)
        extracted = await self.read(log, "sg_prompt/extract", passages, self.max_graph_tokens)
        triples = read_triple_lines(extracted)
        graph = list(dict.fromkeys(f"<{'; '.join(triple)}>" for triple in triples.triples))
        log.flags.update({"malformed_triple": triples.malformed, "empty_graph": not graph})
        reply = await self.read(log, "sg_prompt/answer", passages, self.max_tokens, graph=graph)
        text = log.read_conclusion(reply)
        return log.answer(
            text, passages, {"graph": graph, "thought": reply}, {"triples": len(graph)}
        )


@dataclass(frozen=True)
class ERACoT(PooledFewShot):
    """ERA-CoT (Liu et al., ACL 2024; KnowTrace, §4.1).

    Stages: retrieve once by the question → entities of the passages with their types → explicit relations between them
    → implicit relations → score each implicit relation and drop those below the threshold → answer with a chain of
    thought.
    """

    threshold: Annotated[
        Score,
        Setting(
            'Minimum score, of 10. KnowTrace §4.1 says "predefined".',
            ours="not in KnowTrace",
            code="main.py",
        ),
    ] = 6
    entity_types: Annotated[
        tuple[str, ...],
        Setting(
            "Types of entities: the released entity_type_list.txt without medical codes, money and percentages.",
            ours="work, event and other are ours",
        ),
    ] = ("person", "organisation", "place", "work", "event", "date", "number", "other")
    relations_per_pair: Annotated[
        Count, Setting("Implicit relations.", code="config.py, infer_num")
    ] = 5
    max_list_tokens: Annotated[
        Count,
        Setting(
            "Maximum tokens of the list of entities, and of the list of relations.",
            ours="our choice",
        ),
    ] = 512
    max_tokens: Annotated[
        Count, Setting("Maximum tokens of a reply.", code="config.py, max_length_cot")
    ] = 256

    async def answer(self, question: Question) -> Answer:
        """Extract entities and relations, infer and score more relations, and answer.

        Evidence: the passages as retrieved. Notes: entities, relations and scores. Figures: their numbers.

        Flags: those of `ReadingLog`, `unreadable_score` (the relation is dropped), `malformed_triple`,
        `too_many_relations` (more than `relations_per_pair`, which are dropped) and `no_entities`.
        """
        log = ReadingLog(question)
        passages = await log.search(question.text, self.passages)

        async def write(template: str, max_tokens: int, mark: str = "", **values: Any) -> str:
            """Generate a reply. `mark`: the first mark of a list, which the prompt wrote."""
            text = (await self.read(log, template, passages, max_tokens, **values)).strip()
            return text if not text or text.startswith(mark) else mark + text

        async def extract(template: str, mark: str = "", **values: Any) -> list[Triple]:
            """Return the distinct relations in order."""
            triples = read_triple_lines(await write(template, self.max_list_tokens, mark, **values))
            log.flags["malformed_triple"] += triples.malformed
            return list(dict.fromkeys(Triple(*parts) for parts in triples.triples))

        async def rate(relation: Triple) -> float | None:
            """Return how reliable the model rates a relation, 0 to 10, or None."""
            score = read_score(await write("era_cot/score", MAX_SCORE_TOKENS, relation=relation))
            log.flags["unreadable_score"] += score is None
            return score

        listed = await write("era_cot/entities", self.max_list_tokens, "-", types=self.entity_types)
        entities = bullet_items(listed)
        explicit = await extract("era_cot/explicit", "<", entities=entities)
        stated: dict[str, Any] = {"entities": entities, "explicit": explicit}
        implicit = await extract("era_cot/implicit", **stated, limit=self.relations_per_pair)
        inferred = self.limit_relations(
            [relation for relation in implicit if relation not in explicit], log
        )
        judged = list(zip(inferred, await gather(*map(rate, inferred)), strict=True))
        reliable = [
            relation for relation, score in judged if score is not None and score >= self.threshold
        ]
        reply = await write("era_cot/answer", self.max_tokens, **stated, implicit=reliable)
        log.flags["no_entities"] += not entities
        notes = {
            "entities": entities,
            "explicit": [str(relation) for relation in explicit],
            "implicit": [(str(relation), score) for relation, score in judged],
            "thought": reply,
        }
        figures = {"entities": len(entities), "explicit": len(explicit), "implicit": len(reliable)}
        return log.answer(log.read_conclusion(reply), passages, notes, figures)

    def limit_relations(self, relations: list[Triple], log: ReadingLog) -> list[Triple]:
        """Return the first `relations_per_pair` relations between two entities in either direction."""
        between, first = Counter[frozenset[str]](), list[Triple]()
        for relation in relations:
            pair = frozenset((relation.head.casefold(), relation.tail.casefold()))
            between[pair] += 1
            if between[pair] <= self.relations_per_pair:
                first.append(relation)
        log.flags["too_many_relations"] += len(relations) - len(first)
        return first


@dataclass(frozen=True, slots=True)
class FillAttempt:
    """An attempt at the one unknown of a triple."""

    question: str  # the sub-question, or ""
    passages: tuple[Passage, ...]
    # "" if the passages do not contain it
    value: str
    confidence: float | None  # None: not requested, or unreadable
    kept: bool


@dataclass(slots=True)
class QuestionGraph:
    """The graph of the question with the values of unknowns so far."""

    graph: list[Masked]
    known: dict[str, str] = field(default_factory=dict)  # unknown → value
    # with the values of that time
    tried: set[Masked] = field(default_factory=set)

    def substitute(self, triple: Masked) -> Masked:
        head, relation, tail = (
            UNKNOWN.sub(lambda m: self.known.get(m[0], m[0]), part) for part in triple
        )
        return head, relation, tail

    def next_triples(self) -> dict[str, Masked]:
        """Return one untried triple for each unknown, among those with exactly one unknown left.

        If a triple gives no value, the next one with the same unknown follows in a later round.
        """
        by_unknown: dict[str, Masked] = {}
        for triple in map(self.substitute, self.graph):
            left = {unknown for part in triple for unknown in UNKNOWN.findall(part)}
            if len(left) == 1 and triple not in self.tried:
                by_unknown.setdefault(left.pop(), triple)
        self.tried.update(by_unknown.values())
        return by_unknown


@dataclass(frozen=True)
class GEReasoning(PooledFewShot):
    """GE-Reasoning (Park et al., 2023; KnowTrace, §2 and Appendix A).

    Stages: parse the question into a graph of triples with unknowns (?1, ?2, …) → round by round, write a sub-question
    for every triple with one unknown left, retrieve by it, answer it from the passages and keep a confident answer →
    reason over the filled graph and the sub-questions and answer.
    """

    rewrite: Annotated[
        bool,
        Setting(
            "Search with a sub-question for each triple (abstract; KnowTrace §2). false: search with the triple."
        ),
    ] = True
    threshold: Annotated[
        Score,
        Setting(
            "Minimum confidence of a sub-question and its answer, of 10, as the model states it. 0: the model "
            "states no confidence. The abstract has no value and no measure.",
            ours="not in the abstract",
            other="ERA-CoT's value",
        ),
    ] = 6
    max_rounds: Annotated[
        Count,
        Setting(
            "Maximum rounds of filling. The datasets' questions have at most four hops.",
            ours="our choice",
        ),
    ] = 4
    max_graph_tokens: Annotated[
        Count, Setting("Maximum tokens of the graph.", ours="our choice")
    ] = 256
    max_question_tokens: Annotated[
        Count, Setting("Maximum tokens of a question.", ours="our choice")
    ] = 64
    max_fill_tokens: Annotated[
        Count, Setting("Maximum tokens of a filled slot.", ours="our choice")
    ] = 32
    max_tokens: Annotated[Count, Setting("Maximum tokens of a reply.", ours="our choice")] = 256

    async def answer(self, question: Question) -> Answer:
        """Parse the question into a graph, fill its unknowns in rounds, and answer.

        Evidence: all passages, first retrieved first. `context_tokens`: the filled graph. Notes: the graph as parsed
        and as filled. Figures: triples and filled.

        Flags: those of `ReadingLog`, `malformed_triple`, `empty_graph`, `no_search` (no triple has exactly one unknown,
        so the answer is without passages), `unsure_fill` (answers below the threshold) and `unreadable_score`
        (unreadable confidence), both dropped, `unfilled` (triples with an unknown at the end) and `empty_question` (the
        words of the triple are the query).
        """
        log, stop = ReadingLog(question), ("\nQuestion:", "\nPassages:")
        asked = {
            "examples": self.examples,
            "pinned": passages_text(question.pinned),
            "question": question.text,
        }
        parsed = await log.write(render("ge_reasoning/parse", **asked), self.max_graph_tokens, stop)
        triples = read_triple_lines(parsed)
        state = QuestionGraph(number_unknowns(triples.triples))
        log.flags.update(malformed_triple=triples.malformed, empty_graph=not state.graph)
        attempts = list[FillAttempt]()
        for _ in range(self.max_rounds):
            masked = state.next_triples()
            if not masked:
                break
            fills = await gather(*(self.fill(triple, log) for triple in masked.values()))
            state.known |= {
                unknown: fill.value
                for unknown, fill in zip(masked, fills, strict=True)
                if fill.kept
            }
            attempts += fills
        filled = [state.substitute(triple) for triple in state.graph]
        log.flags["no_search"] += not attempts
        log.flags["unfilled"] += sum(bool(UNKNOWN.search(" ".join(triple))) for triple in filled)
        graph = [f"<{'; '.join(triple)}>" for triple in filled]
        certain_fills = [fill for fill in attempts if fill.kept and fill.question]
        prompt = render(
            "ge_reasoning/answer", **asked, graph=graph, rewrite=self.rewrite, fills=certain_fills
        )
        reply = await log.write(prompt, self.max_tokens, stop)
        notes = {
            "question_graph": state.graph,
            "filled_graph": filled,
            "fills": [(fill.question, fill.value, fill.confidence) for fill in attempts],
            "thought": reply,
        }
        figures = {"triples": len(graph), "filled": len(state.known)}
        passages = (passage for fill in attempts for passage in fill.passages)
        tokens = await CountTokens("\n".join(graph)) if graph else 0
        return log.answer(log.read_conclusion(reply), passages, notes, figures, tokens)

    async def fill(self, triple: Masked, log: ReadingLog) -> FillAttempt:
        """Retrieve for the triple and generate the value of its unknown."""
        sub_question = ""
        if self.rewrite:
            prompt = render(
                "ge_reasoning/ask",
                examples=self.examples,
                question=log.question.text,
                triple=triple,
            )
            sub_question = (await log.write(prompt, self.max_question_tokens, ("\n",))).strip()
            log.flags["empty_question"] += not sub_question
        query = sub_question or " ".join(UNKNOWN.sub(" ", " ".join(triple)).split())
        passages = await log.search(query, self.passages)
        values: dict[str, Any] = {"triple": triple, "asked": sub_question}
        reply = await self.read(
            log, "ge_reasoning/fill", passages, self.max_fill_tokens, stop=("\n",), **values
        )
        value, confidence, is_certain = reply.strip().rstrip("."), None, True
        if not value or value.casefold() == "unknown" or UNKNOWN.search(value):
            value, is_certain = "", False
        elif self.threshold:
            values["value"] = value
            rated = await self.read(
                log, "ge_reasoning/confidence", passages, MAX_SCORE_TOKENS, stop=(), **values
            )
            confidence = read_score(rated)
            is_certain = confidence is not None and confidence >= self.threshold
            log.flags["unreadable_score" if confidence is None else "unsure_fill"] += not is_certain
        return FillAttempt(sub_question, passages, value, confidence, is_certain)


def number_unknowns(triples: Iterable[Masked]) -> list[Masked]:
    """Return the distinct triples with a number for each "?": a tail is a new unknown, a head the one before it."""
    graph, count = dict[Masked, None](), 0
    for head, relation, tail in triples:
        count += head == "?" and not count
        entity = f"?_{count}" if head == "?" else head
        count += tail == "?"
        graph[entity, relation, f"?_{count}" if tail == "?" else tail] = None
    return list(graph)
