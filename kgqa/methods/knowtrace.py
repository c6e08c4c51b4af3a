"""KnowTrace (Li et al., KDD 2025): the model traces out a knowledge graph for the question, hop by hop.

Algorithm 1: exploration either answers from the graph or names entity–relation pairs; every pair is a query, and
completion reads its passages for triples, which join the graph. §3.3: backtracing finds the triples that carry the
answer, here for every question, right or wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from kgqa.calls import CountTokens, Generate, Search, gather
from kgqa.constraints import Count
from kgqa.methods.steps.fitting import Reading
from kgqa.methods.steps.knowtrace_graph import (
    Fact,
    Naming,
    Pair,
    as_paths,
    folded,
    initial_entities,
    normalised,
    support,
    target_entities,
)
from kgqa.methods.steps.knowtrace_replies import Exploration, read_exploration, read_facts
from kgqa.methods.steps.reader import passages_text, with_pinned
from kgqa.methods.steps.replies import counted
from kgqa.prompting import render
from kgqa.protocols import Need
from kgqa.types import Answer, Completion, Json, Passage, Prompt, Question

CONCLUDING = " Yes\nThought:"


@dataclass(frozen=True, slots=True)
class Completed:
    """What the passages of one pair say about it."""

    pair: Pair
    facts: tuple[Fact, ...] = ()
    passages: tuple[Passage, ...] = ()
    tokens: int = 0  # of the passages
    text: str = ""
    flags: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Course:
    """How the tracing went so far."""

    graph: dict[Fact, None] = field(default_factory=dict)  # in the order found
    memory: str = ""  # the graph as the last exploration was told it
    explored: list[Exploration] = field(default_factory=list)
    completed: list[list[Completed]] = field(default_factory=list)  # by iteration
    flags: Counter[str] = field(default_factory=Counter)

    def grow(self, completions: list[Completed]) -> bool:
        """Take one iteration's triples in; False where none of them is new."""
        before = len(self.graph)
        self.completed.append(completions)
        for completed in completions:
            self.graph.update(dict.fromkeys(completed.facts))
            self.flags.update(completed.flags)
        return len(self.graph) > before


@dataclass(frozen=True)
class KnowTrace:
    """Fields as in conf/method/knowtrace.yaml, which cites the source of each value."""

    memory: Literal["triplets", "paths", "texts"]
    passages: Count
    max_iterations: Count
    max_pairs: Count
    max_exploration_tokens: Count
    max_completion_tokens: Count
    max_memory_tokens: Count
    exact: bool
    explorations_from: tuple[Mapping[str, Json], ...]
    completions_from: tuple[Mapping[str, Json], ...]

    uses: ClassVar[frozenset[Need]] = frozenset({"model", "search"})

    async def answer(self, question: Question) -> Answer:
        """Evidence: all retrieved passages, first retrieved first. `context_tokens`: the knowledge that the last
        exploration is told. Figures: iterations, pairs, triples, support, passage_tokens (#Tok of Table 2),
        written_tokens and, of these, filtered_tokens (FA of Figure 4).

        Flags: `forced_answer` where the last iteration, a standstill or an unreadable reply ended the tracing;
        `unreadable_exploration`, `no_pairs`, `malformed_pair`, `too_many_pairs`, `standstill` where no triple was new,
        `empty_retrieval`, `passages_dropped`, `malformed_triple`, `empty_triple` where its object is "none",
        `cut_memory` where `max_memory_tokens` were not enough for the graph as a text, `cut_reply`, `empty_answer`.
        """
        course = Course()
        for _ in range(self.max_iterations):
            exploration = await self.explore(question, course)
            if not exploration.pairs:
                break
            if not course.grow(await gather(*(self.complete(question, pair) for pair in exploration.pairs))):
                course.flags["standstill"] += 1  # the next exploration would be word for word the same
                break
        if not course.explored[-1].answer:
            await self.explore(question, course, begun=CONCLUDING)
        if not course.explored[-1].answer:  # a thought alone
            thought = course.explored.pop().thought
            await self.explore(question, course, begun=f"{CONCLUDING} {thought}\nAnswer:")
        return await self.conclude(course)

    @property
    def naming(self) -> Naming:
        return folded if self.exact else normalised

    async def explore(self, question: Question, course: Course, *, begun: str = "") -> Exploration:
        """Equation 1. `begun`: how the reply begins where it has to answer (not in the paper)."""
        course.memory = await self.remember(course)
        prompt = render(
            "knowtrace/explore",
            examples=[{**example, "memory": self.told(example)} for example in self.explorations_from],
            pinned=passages_text(question.pinned),
            question=question.text,
            form=self.memory,
            memory=course.memory,
            begun=begun,
        )
        reply = await Generate(prompt, self.max_exploration_tokens, stop=("\nQuestion:",))
        written = f"{begun} {reply.text.strip()}" if begun else reply.text
        exploration = read_exploration(written)
        course.flags.update(_flags(exploration, reply))
        if len(exploration.pairs) > self.max_pairs:
            course.flags["too_many_pairs"] += 1
            exploration = replace(exploration, pairs=exploration.pairs[: self.max_pairs])
        course.flags["forced_answer"] |= bool(begun)
        course.explored.append(exploration)
        return exploration

    async def complete(self, question: Question, pair: Pair) -> Completed:
        """Equation 2: retrieve by "entity relation", then read the passages for triples about the pair."""
        passages = await Search(f"{pair.entity} {pair.relation}", self.passages)
        if not passages:
            return Completed(pair, flags={"empty_retrieval": 1})
        reading = Reading()

        def prompt(shown: tuple[Passage, ...]) -> Prompt:
            text = passages_text(shown)
            return render("knowtrace/complete", examples=self.completions_from, pair=pair, passages=text)

        reply = await reading.ask(
            prompt, with_pinned(question, passages), self.max_completion_tokens, stop=("\nPassages:",)
        )
        written = read_facts(reply.text)
        reading.flags.update(malformed_triple=written.malformed, empty_triple=written.empty)
        return Completed(pair, written.facts, passages, reading.tokens, reply.text, reading.flags)

    async def remember(self, course: Course) -> str:
        """The graph as the next exploration sees it (§3.2, knowledge prompting strategies); "" while it is empty."""
        graph = list(course.graph)
        if self.memory != "texts" or not graph:
            return self.lines(graph)
        reply = await Generate(render("knowtrace/rewrite", triples=self.lines(graph)), self.max_memory_tokens)
        course.flags["cut_memory"] += reply.finish == "length"
        return reply.text.strip()

    def lines(self, graph: list[Fact]) -> str:
        return "\n".join(as_paths(graph, self.naming) if self.memory == "paths" else map(str, graph))

    def told(self, example: Mapping[str, Json]) -> str:
        """An example's graph in the same form as the question's."""
        text: str = example["text"]
        return text if self.memory == "texts" else self.lines([Fact(*triple) for triple in example["triples"]])

    async def conclude(self, course: Course) -> Answer:
        """Backtracing (§3.3) from what the last exploration says."""
        last, graph = course.explored[-1], list(course.graph)
        completed = [completion for completions in course.completed for completion in completions]
        rounds = [
            ([c.pair for c in completions], [f for c in completions for f in c.facts])
            for completions in course.completed
        ]
        targets = target_entities(graph, f"{last.thought}\n{last.answer}", self.naming)
        kept = support(graph, initial_entities(rounds, self.naming), targets, self.naming)
        written = [exploration.text for exploration in course.explored] + [completion.text for completion in completed]
        return Answer(
            last.answer,
            tuple(dict.fromkeys(passage.id for completion in completed for passage in completion.passages)),
            context_tokens=await CountTokens(course.memory) if course.memory else 0,
            flags=counted(**course.flags, empty_answer=not last.answer),
            figures={
                "iterations": len(course.completed),
                "pairs": len(completed),
                "triples": len(graph),
                "support": len(kept),
                "passage_tokens": sum(completion.tokens for completion in completed),
                "written_tokens": await CountTokens("\n".join(written)),
                "filtered_tokens": await CountTokens("\n".join(useless(course, set(kept)))),
            },
            notes={"iterations": [_note(c) for c in course.completed], "thought": last.thought, "support": kept},
        )


def useless(course: Course, kept: set[Fact]) -> list[str]:
    """What backtracing filters out of the generations: unavailing pairs, extraneous triples, and whole generations
    of which nothing is left (§3.3). The last exploration, which concludes, stays."""
    texts: list[str] = []
    for exploration, completions in zip(course.explored, course.completed, strict=False):
        unavailing = [str(completion.pair) for completion in completions if not kept.intersection(completion.facts)]
        texts += unavailing if len(unavailing) < len(completions) else [exploration.text]
        for completion in completions:
            extraneous = [str(fact) for fact in completion.facts if fact not in kept]
            texts += extraneous if len(extraneous) < len(completion.facts) else [completion.text]
    return texts + [exploration.text for exploration in course.explored[len(course.completed) : -1]]


def _note(completions: list[Completed]) -> Json:
    return [
        {"pair": completion.pair, "triples": completion.facts, "passages": [p.id for p in completion.passages]}
        for completion in completions
    ]


def _flags(exploration: Exploration, reply: Completion) -> dict[str, int]:
    return {
        "unreadable_exploration": exploration.sufficient is None or (exploration.sufficient and not exploration.answer),
        "malformed_pair": exploration.malformed,
        "no_pairs": exploration.sufficient is False and not exploration.pairs,
        "cut_reply": reply.finish == "length",
    }
