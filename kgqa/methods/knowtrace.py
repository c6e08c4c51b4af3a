"""KnowTrace (Li et al., KDD 2025): the model traces out a knowledge graph for the question, hop by hop.

Algorithm 1: exploration either answers from the graph or names entity–relation pairs; every pair is a query, and
completion reads its passages for triples, which join the graph. §3.3: backtracing finds the triples that carry the
answer, here for every question, right or wrong, and with them what of each reply is worth learning.

Roles: `explorer` and `completer`, which the paper trains an adapter each for, else the reader; `reader` rewrites texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from kgqa.calls import CountTokens, Generate, Search, gather
from kgqa.constraints import Count
from kgqa.methods.steps.fitting import Reading
from kgqa.methods.steps.knowtrace_course import (
    COMPLETER,
    EXPLORER,
    Completed,
    Course,
    filtered,
    generations,
    lessons,
)
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
        written_tokens and, of these, filtered_tokens (FA of Figure 4). Lessons: P⁺ and T⁺ of §3.3.

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
        prompt = self.exploration(question, course.memory, begun)
        reply = await Generate(prompt, self.max_exploration_tokens, stop=("\nQuestion:",), role=EXPLORER)
        call = course.heard()
        written = f"{begun} {reply.text.strip()}" if begun else reply.text
        exploration = read_exploration(written)
        course.flags.update(_flags(exploration, reply))
        if len(exploration.pairs) > self.max_pairs:
            course.flags["too_many_pairs"] += 1
            exploration = replace(exploration, pairs=exploration.pairs[: self.max_pairs])
        course.flags["forced_answer"] |= bool(begun)
        course.explored.append(replace(exploration, call=call, forced=bool(begun)))
        return exploration

    def exploration(self, question: Question, memory: str, begun: str = "") -> Prompt:
        return render(
            "knowtrace/explore",
            examples=[{**example, "memory": self.told(example)} for example in self.explorations_from],
            pinned=passages_text(question.pinned),
            question=question.text,
            form=self.memory,
            memory=memory,
            begun=begun,
        )

    def supported(self, question: Question, notes: Mapping[str, Json]) -> Sequence[tuple[Prompt, Prompt]]:
        """Of each exploration of an answer with these notes: its prompt, and that of the graph's support alone.

        Not of those that were begun for the model. The graph as a text was written by a model, so it is not known here.
        """
        kept = {Fact(*fact) for fact in notes["support"]}
        told: list[tuple[Prompt, Prompt]] = []
        graph: dict[Fact, None] = {}
        for completions in [[], *notes["iterations"]]:
            graph.update((Fact(*fact), None) for one in completions for fact in one["triples"])
            memories = (self.lines(list(graph)), self.lines([fact for fact in graph if fact in kept]))
            whole, support = (self.exploration(question, memory) for memory in memories)
            told.append((whole, support))
        return told

    async def complete(self, question: Question, pair: Pair) -> Completed:
        """Equation 2: retrieve by "entity relation", then read the passages for triples about the pair."""
        passages = await Search(f"{pair.entity} {pair.relation}", self.passages)
        if not passages:
            return Completed(pair, flags={"empty_retrieval": 1})
        reading = Reading()

        def prompt(shown: tuple[Passage, ...]) -> Prompt:
            text = passages_text(shown)
            return render("knowtrace/complete", examples=self.completions_from, pair=pair, passages=text)

        given = with_pinned(question, passages)
        reply = await reading.ask(prompt, given, self.max_completion_tokens, ("\nPassages:",), role=COMPLETER)
        written = read_facts(reply.text)
        reading.flags.update(malformed_triple=written.malformed, empty_triple=written.empty)
        return Completed(pair, written.facts, passages, reading.tokens, reply.text, reading.flags)

    async def remember(self, course: Course) -> str:
        """The graph as the next exploration sees it (§3.2, knowledge prompting strategies); "" while it is empty."""
        graph = list(course.graph)
        if self.memory != "texts" or not graph:
            return self.lines(graph)
        reply = await Generate(render("knowtrace/rewrite", triples=self.lines(graph)), self.max_memory_tokens)
        course.heard()
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
        judged = generations(course, set(kept))
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
                "filtered_tokens": await CountTokens("\n".join(filtered(judged))),
            },
            notes={"iterations": [_note(c) for c in course.completed], "thought": last.thought, "support": kept},
            lessons=lessons(judged),
        )


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
