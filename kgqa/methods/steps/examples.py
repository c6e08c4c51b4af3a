"""Few-shot examples of the KnowTrace baselines: the same questions for each method, in the form of its prompts.

Templates read the attributes of `Example` by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar

from kgqa.methods.steps.reader import ReadingLog, add_pinned, passages_text
from kgqa.methods.steps.replies import extract_answer
from kgqa.prompting.demonstrations import (
    Entity,
    SubQuestion,
    ThoughtDemonstration,
    demonstration_set,
    describe_set,
)
from kgqa.protocols import Need
from kgqa.types import Passage, Question, Triple
from kgqa.util.sentences import sentences
from kgqa.util.settings import Setting
from kgqa.util.validators import Count, Natural

# the observation of a search without passages
NOTHING_FOUND = "Nothing was found."


@dataclass(frozen=True, slots=True)
class Action:
    """A step of ReAct. The last one has no observation."""

    thought: str
    action: str
    observation: str = ""


@dataclass(frozen=True, slots=True)
class Fill:
    """A triple with one unknown, its sub-question, and the value from these passages."""

    passages: str
    triple: Triple
    question: str
    value: str


@dataclass(frozen=True)
class Example:
    """A few-shot example as templates show it. Its passages are the pinned ones and the gold ones, as texts."""

    shown: ThoughtDemonstration

    @property
    def pinned(self) -> str:
        return passages_text(self.shown.pinned)

    @property
    def passages(self) -> str:
        return passages_text(self.shown.context(0))

    @property
    def thought(self) -> str:
        """Return the chain of thought before its answer."""
        return " ".join(self._thoughts)

    @property
    def entities(self) -> tuple[Entity, ...]:
        """Return the entities, those of the decomposition first."""
        named = {name for step in self.shown.steps for name in (step.triple.head, step.triple.tail)}
        return tuple(sorted(self.shown.entities, key=lambda entity: entity.name not in named))

    @property
    def masked(self) -> tuple[Triple, ...]:
        """Return the decomposition as a graph in which the answer of step n is ?n."""
        marks: dict[str, str] = {}
        graph = []
        for number, step in enumerate(self.shown.steps, start=1):
            head = marks.get(step.triple.head, step.triple.head)
            graph.append(Triple(head, step.triple.relation, f"?{number}"))
            marks[step.answer] = f"?{number}"
        return tuple(graph)

    @property
    def fill(self) -> Fill:
        """Return the last step with the passage that answers it."""
        return self._fill(self.shown.steps[-1].passage, self.shown.steps[-1].answer)

    @property
    def unfillable(self) -> Fill:
        """Return the last step with a distractor, or `fill` if there is none."""
        distractors = [
            passage for passage in self.shown.context(1) if passage not in self.shown.context(0)
        ]
        return self._fill(distractors[0], "unknown") if distractors else self.fill

    def actions(self, position: int) -> tuple[Action, ...]:
        """Return the steps of ReAct: a search for each unknown passage that answers a step, and the final action.

        Each search also finds a distractor. Transcripts have several lengths, by `place` in the prompt (from 0): one
        search for each passage, the first search fails, the first search finds all, the last search fails.
        """
        ids, fact, actions = {passage.id for passage in self.shown.pinned}, "", list[Action]()
        wanted = {step.passage.id: step for step in self.shown.steps if step.passage.id not in ids}
        failing = {1: [*wanted][:1], 3: [*wanted][-1:]}.get(position % 4, [])
        for step in self.shown.steps:
            if step.passage.id not in ids:
                gold = (
                    [each.passage for each in wanted.values()]
                    if position % 4 == 2
                    else [step.passage]
                )
                ids.update(passage.id for passage in gold)
                need = f"{fact} Now I need to find out:" if fact else "I need to find out first:"
                search = f"Search[{step.triple.head} {step.triple.relation}]"
                if step.passage.id in failing:
                    observation = passages_text(self._distractors(len(actions), 2)) or NOTHING_FOUND
                    actions.append(Action(f"{need} {step.question}", search, observation))
                    need, search = (
                        "The passages do not say this. I search in other words:",
                        f"Search[{step.question}]",
                    )
                others = self._distractors(len(actions) + len(failing), 1)
                passages = (*others, *gold) if len(actions) % 2 else (*gold, *others)
                actions.append(Action(f"{need} {step.question}", search, passages_text(passages)))
            fact = self._find_thought(step)
        return (*actions, Action(self.thought, f"Finish[{self.shown.answer}]"))

    def _distractors(self, start: int, count: int) -> list[Passage]:
        """Return `count` passages that support nothing, if there are any, from the `start`-th on and in a circle."""
        distractors = [
            passage for passage in self.shown.contexts[-1] if passage not in self.shown.context(0)
        ]
        return [
            distractors[(start + number) % len(distractors)]
            for number in range(min(count, len(distractors)))
        ]

    @cached_property
    def _thoughts(self) -> list[str]:
        return [
            sentence
            for sentence in sentences(self.shown.thoughts)
            if extract_answer(sentence) is None
        ]

    def _find_thought(self, step: SubQuestion) -> str:
        """Return the thought with the answer of a step, preferably with the head of its triple, too."""
        thoughts = [sentence for sentence in self._thoughts if step.answer in sentence]
        both = [sentence for sentence in thoughts if step.triple.head in sentence]
        return next(iter(both or thoughts), f"So it is {step.answer}.")

    def _fill(self, passage: Passage, value: str) -> Fill:
        step = self.shown.steps[-1]
        around = add_pinned(
            Question("", self.shown.question, (), pinned=self.shown.pinned), (passage,)
        )
        mark = f"?{len(self.shown.steps)}"
        return Fill(
            passages_text(around),
            Triple(step.triple.head, step.triple.relation, mark),
            step.question,
            value,
        )


SAMPLE = Setting(
    "Number of the random set of few-shot examples, from 1. `repeats=` runs several.",
    ours="our choice",
)


@dataclass(frozen=True)
class FewShotKeys:
    """The keys of methods with few-shot examples from a pool."""

    few_shot_path: Annotated[
        str,
        Setting(
            "Pool of few-shot examples: our hotpotqa, 2wiki, musique or iirc, or a file. Every method shows the "
            "same questions."
        ),
    ]
    demonstration_set: Annotated[Count, SAMPLE] = 1
    demonstration_count: Annotated[
        Natural,
        Setting(
            "Few-shot examples in the prompt. KnowTrace §4.2 has four per instruction.",
            ours="not in KnowTrace for its baselines",
        ),
    ] = 4


@dataclass(frozen=True)
class PooledFewShot(FewShotKeys):
    """A baseline of KnowTrace, with the `demonstration_set`-th random sample of `demonstration_count` examples.

    passages: of each search.
    """

    pool: Annotated[
        tuple[ThoughtDemonstration, ...],
        Setting("Questions per family.", ours="the examples are ours"),
    ] = field(kw_only=True)
    passages: Annotated[
        Count, Setting("Number of passages per search, N.", paper="KnowTrace §4.2")
    ] = 5

    uses: ClassVar[frozenset[Need]] = frozenset({"model", "search"})

    def __post_init__(self) -> None:
        _ = self.examples

    @property
    def shows(self) -> str:
        return f"{self.few_shot_path}: {describe_set(self.pool, self.demonstration_set, self.demonstration_count)}"

    @cached_property
    def examples(self) -> tuple[Example, ...]:
        sample = demonstration_set(self.pool, self.demonstration_set, self.demonstration_count)
        return tuple(map(Example, sample))

    async def read(
        self,
        log: ReadingLog,
        template: str,
        passages: Sequence[Passage],
        max_tokens: int,
        **values: Any,
    ) -> str:
        """Generate with a template that shows the examples, the question, and as many of the passages as fit."""
        values |= {"examples": self.examples, "question": log.question.text}
        return await log.read(template, passages, max_tokens, **values)
