"""KnowTrace (Li et al., KDD 2025): the model builds a knowledge graph for the question, hop by hop.

Algorithm 1: exploration answers from the graph or names entity–relation pairs. Every pair is a query, and completion
extracts triples from its passages for the graph. §3.3: backtracing finds the triples that support the answer, here for
every question, right or wrong. They select the training targets in the replies.

Roles: `explorer` and `completer`, with one trained adapter each in the paper, and `reader`, which rewrites texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

from kgqa.calls import CountTokens, Generate, Search, gather
from kgqa.methods.steps.knowtrace_graph import (
    Exploration,
    Fact,
    Pair,
    ParsedFacts,
    find_initial_entities,
    find_target_entities,
    format_paths,
    read_exploration,
    read_facts,
    support,
)
from kgqa.methods.steps.reader import ReadingLog, evidence_of, passages_text
from kgqa.prompting import render
from kgqa.protocols import Need
from kgqa.types import Answer, Json, Lesson, Passage, Prompt, Question
from kgqa.util.settings import Setting
from kgqa.util.validators import Count

CONCLUDING = " Yes\nThought:"
EXPLORER, COMPLETER = "explorer", "completer"


@dataclass(frozen=True, slots=True)
class PairCompletion:
    """The triples in the passages of one pair."""

    pair: Pair
    reply: ParsedFacts
    passages: tuple[Passage, ...] = ()
    tokens: int = 0  # of the passages
    flags: Mapping[str, int] = field(default_factory=dict)
    # see `kgqa.types.Lesson`; None: no passages, so no model call
    call: int | None = None


@dataclass(slots=True)
class KnowTraceState:
    """The graph, the replies and the flags so far."""

    graph: dict[Fact, None] = field(default_factory=dict)  # in the order found
    # the graph in the prompt of the last exploration
    memory: str = ""
    explored: list[Exploration] = field(default_factory=list)
    completed: list[list[PairCompletion]] = field(default_factory=list)  # by iteration
    flags: Counter[str] = field(default_factory=Counter)
    replies: int = 0

    def record_reply(self) -> int:
        """Count a reply and return its number, from 0."""
        self.replies += 1
        return self.replies - 1

    def add_iteration(self, completions: Iterable[PairCompletion]) -> bool:
        """Add the triples of one iteration, and return whether one of them is new."""
        before = len(self.graph)
        self.completed.append(
            [replace(one, call=self.record_reply()) if one.passages else one for one in completions]
        )
        for completed in self.completed[-1]:
            self.graph.update(dict.fromkeys(completed.reply.facts))
            self.flags.update(completed.flags)
        return len(self.graph) > before


@dataclass(frozen=True)
class KnowTrace:
    """The method, with the fields of conf/method/knowtrace.yaml."""

    memory: Annotated[
        Literal["triplets", "paths", "texts"],
        Setting(
            "What the explorer sees of earlier steps: triplets | paths | texts.",
            paper="§3.2, Table 4",
        ),
    ] = "triplets"
    passages: Annotated[
        Count, Setting("N: passages retrieved per search.", paper="§4.2; 5 to 50 in Fig. 5")
    ] = 5
    max_iterations: Annotated[
        Count, Setting("Maximum number of iterations, L.", ours="our choice")
    ] = 5
    max_pairs: Annotated[
        Count, Setting("Per iteration. The paper has no bound.", ours="our choice")
    ] = 8
    at_limit: Annotated[
        Literal["answer", "empty"],
        Setting(
            "After L iterations, or one without a new triple: answer (the model must answer from the graph) | "
            "empty (no answer). Algorithm 1 does not define it.",
            ours="our choice",
        ),
    ] = "answer"
    max_exploration_tokens: Annotated[
        Count, Setting("Maximum tokens of an exploration.", ours="our choice")
    ] = 256
    max_completion_tokens: Annotated[
        Count, Setting("Maximum tokens of a completion.", ours="our choice")
    ] = 256
    max_memory_tokens: Annotated[
        Count, Setting("Maximum tokens of the texts.", ours="our choice", only_if="memory=texts")
    ] = 512
    exploration_few_shot: Annotated[
        tuple[Mapping[str, Json], ...],
        Setting(
            "Four few-shot examples per instruction, shared by all datasets (§4.2), in the layout of Table 5.",
            ours="the examples are ours",
        ),
    ] = field(kw_only=True)
    completion_few_shot: Annotated[
        tuple[Mapping[str, Json], ...],
        Setting("Four few-shot examples (§4.2).", ours="the examples are ours"),
    ] = field(kw_only=True)

    uses: ClassVar[frozenset[Need]] = frozenset({"model", "search"})

    async def answer(self, question: Question) -> Answer:
        """Trace a graph and answer from it (Algorithm 1).

        Evidence: all retrieved passages, first retrieved first. `context_tokens`: the graph in the prompt of the last
        exploration. Figures: iterations, pairs, triples, support, forced_answer, passage_tokens (#Tok of Table 2),
        written_tokens and, of these, filtered_tokens (FA of Figure 4). Lessons: P⁺ and T⁺ of §3.3.

        Flags: `forced_answer` (the last iteration, a standstill or an unreadable reply ended the tracing), `unfinished`
        (the same with `at_limit=empty`, so that there is no answer), `unreadable_exploration`, `no_pairs`,
        `malformed_pair`, `too_many_pairs`, `standstill` (no new triple), `empty_retrieval`, `passages_dropped`,
        `malformed_triple`, `empty_triple` (its object is "none"), `cut_memory` (the graph as text has more than
        `max_memory_tokens`), `cut_reply`, `empty_answer`.
        """
        state = KnowTraceState()
        for _ in range(self.max_iterations):
            exploration = await self.explore(question, state)
            if not exploration.pairs:
                break
            pairs = exploration.pairs[: self.max_pairs]
            if not state.add_iteration(
                await gather(*(self.complete(question, pair) for pair in pairs))
            ):
                # the prompt of the next exploration would be the same
                state.flags["standstill"] += 1
                break
        if self.at_limit == "answer":
            await self.force_answer(question, state)
        else:
            state.flags["unfinished"] += not state.explored[-1].answer
        return await self.conclude(state)

    async def force_answer(self, question: Question, state: KnowTraceState) -> None:
        """Make the model answer from the graph if it has not answered (not in the paper)."""
        if not state.explored[-1].answer:
            await self.explore(question, state, prefix=CONCLUDING)
        if not state.explored[-1].answer:  # only a thought
            thought = state.explored.pop().thought
            await self.explore(question, state, prefix=f"{CONCLUDING} {thought}\nAnswer:")

    async def explore(
        self, question: Question, state: KnowTraceState, *, prefix: str = ""
    ) -> Exploration:
        """Run the exploration step (Equation 1). `prefix`: the start of a reply that must answer (not in the paper)."""
        state.memory = await self.remember(state)
        prompt = self.exploration(question, state.memory, prefix)
        reply = await Generate(
            prompt, self.max_exploration_tokens, stop=("\nQuestion:",), role=EXPLORER
        )
        call = state.record_reply()
        completed_text = f"{prefix} {reply.text.strip()}" if prefix else reply.text
        exploration = read_exploration(completed_text)
        state.flags.update(
            unreadable_exploration=not exploration.answer
            if exploration.sufficient
            else exploration.sufficient is None,
            malformed_pair=exploration.malformed,
            no_pairs=exploration.sufficient is False and not exploration.pairs,
            cut_reply=reply.finish == "length",
        )
        if len(exploration.pairs) > self.max_pairs:
            state.flags["too_many_pairs"] += 1
        state.flags["forced_answer"] |= bool(prefix)
        state.explored.append(replace(exploration, call=call, forced=bool(prefix)))
        return exploration

    def exploration(self, question: Question, memory: str, prefix: str = "") -> Prompt:
        return render(
            "knowtrace/explore",
            examples=[
                {**example, "memory": self.example_memory(example)}
                for example in self.exploration_few_shot
            ],
            pinned=passages_text(question.pinned),
            question=question.text,
            form=self.memory,
            memory=memory,
            begun=prefix,
        )

    async def complete(self, question: Question, pair: Pair) -> PairCompletion:
        """Retrieve by "entity relation" and extract triples about the pair from the passages (Equation 2)."""
        passages = await Search(f"{pair.entity} {pair.relation}", self.passages)
        if not passages:
            return PairCompletion(pair, ParsedFacts(), flags={"empty_retrieval": 1})
        log, tokens, examples = (
            ReadingLog(question),
            self.max_completion_tokens,
            self.completion_few_shot,
        )
        reply = await log.read(
            "knowtrace/complete", passages, tokens, role=COMPLETER, examples=examples, pair=pair
        )
        facts = read_facts(reply)
        log.flags.update(malformed_triple=facts.malformed, empty_triple=facts.empty)
        return PairCompletion(pair, facts, passages, log.tokens, log.flags)

    async def remember(self, state: KnowTraceState) -> str:
        """Return the graph for the next exploration (§3.2, knowledge prompting strategies), "" if it is empty."""
        graph = list(state.graph)
        if self.memory != "texts" or not graph:
            return self.lines(graph)
        reply = await Generate(
            render("knowtrace/rewrite", triples=self.lines(graph)), self.max_memory_tokens
        )
        state.record_reply()
        state.flags["cut_memory"] += reply.finish == "length"
        return reply.text.strip()

    def lines(self, graph: list[Fact]) -> str:
        return "\n".join(format_paths(graph) if self.memory == "paths" else map(str, graph))

    def example_memory(self, example: Mapping[str, Json]) -> str:
        """Return the graph of a few-shot example in the form of `memory`."""
        text: str = example["text"]
        return (
            text
            if self.memory == "texts"
            else self.lines([Fact(*triple) for triple in example["triples"]])
        )

    async def conclude(self, state: KnowTraceState) -> Answer:
        """Run backtracing (§3.3) from the last exploration."""
        last, graph = state.explored[-1], list(state.graph)
        completed = [completion for completions in state.completed for completion in completions]
        rounds = [
            ([one.pair for one in each], [fact for one in each for fact in one.reply.facts])
            for each in state.completed
        ]
        iterations = [
            [
                {
                    "pair": one.pair,
                    "triples": one.reply.facts,
                    "passages": [p.id for p in one.passages],
                }
                for one in each
            ]
            for each in state.completed
        ]
        targets = find_target_entities(graph, f"{last.thought}\n{last.answer}")
        supporting = support(graph, find_initial_entities(rounds), targets)
        lessons, filtered = judge_replies(state, set(supporting))
        replies = [each.text for each in state.explored] + [each.reply.text for each in completed]
        return Answer(
            last.answer,
            evidence_of(passage for completion in completed for passage in completion.passages),
            context_tokens=await CountTokens(state.memory) if state.memory else 0,
            flags={**state.flags, "empty_answer": not last.answer},
            figures={
                "iterations": len(state.completed),
                "pairs": len(completed),
                "triples": len(graph),
                "support": len(supporting),
                "forced_answer": state.flags["forced_answer"],
                "passage_tokens": sum(completion.tokens for completion in completed),
                "written_tokens": await CountTokens("\n".join(replies)),
                "filtered_tokens": await CountTokens("\n".join(filtered)),
            },
            notes={"iterations": iterations, "thought": last.thought, "support": supporting},
            lessons=lessons,
        )


def judge_replies(
    state: KnowTraceState, support: set[Fact]
) -> tuple[tuple[Lesson, ...], list[str]]:
    """Return the training targets (P⁺ and T⁺ of Algorithm 2) in the order of calls, and the filtered texts (FA).

    Unavailing pairs, extraneous triples and replies without a remaining part are filtered out. The last exploration,
    which concludes, stays. It is a training target only if it was not forced.
    """
    lessons, filtered = list[Lesson](), list[str]()

    def judge(
        call: int | None, role: str, text: str, parts: Mapping[Any, bool], *, is_clean: bool
    ) -> None:
        """Keep the useful parts: as written if the reply has no others, otherwise listed in the requested format."""
        useful = [part for part, is_useful in parts.items() if is_useful]
        filtered.extend([str(part) for part in parts if part not in useful] if useful else [text])
        if call is None:
            return
        if useful and not (is_clean and len(useful) == len(parts)):
            listed = (
                map(str, useful)
                if role == COMPLETER
                else ["No", "Explore:", *(f"- {pair}" for pair in useful)]
            )
            text = "\n".join(listed)
        lessons.append(Lesson(call, role, text.strip() if useful else ""))

    for asked, completions in zip(state.explored, state.completed, strict=False):
        pairs = {one.pair: bool(support.intersection(one.reply.facts)) for one in completions}
        is_clean = not asked.malformed and len(asked.pairs) == len(pairs)
        judge(asked.call, EXPLORER, asked.text, pairs, is_clean=is_clean)
        for one in completions:
            facts = {fact: fact in support for fact in one.reply.facts}
            is_clean = not one.reply.malformed and not one.reply.empty
            judge(one.call, COMPLETER, one.reply.text, facts, is_clean=is_clean)
    rest = state.explored[len(state.completed) :]
    filtered += [unread.text for unread in rest[:-1]]
    for last in rest[-1:]:
        if last.sufficient and last.answer and not last.forced:
            lessons.append(Lesson(last.call, EXPLORER, last.text.strip()))
    return tuple(lessons), filtered
