"""The questions of a pool in the forms that methods show them: every method shows the same ones, each its own way."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from kgqa.constraints import Count, Natural
from kgqa.demonstrations import Entity, SubQuestion, ThoughtDemonstration, demonstration_set, set_said
from kgqa.methods.steps.few_shot import stated_answer
from kgqa.methods.steps.reader import passages_text, with_pinned
from kgqa.methods.steps.sentences import sentences
from kgqa.types import Passage, Question, Triple


@dataclass(frozen=True, slots=True)
class Action:
    """A step of ReAct; `observation` is empty where it finishes."""

    thought: str
    action: str
    observation: str = ""


@dataclass(frozen=True, slots=True)
class Fill:
    """A triple of a question's graph with one unknown, its sub-question, and what these passages say in answer."""

    passages: str
    triple: Triple
    question: str
    value: str


@dataclass(frozen=True)
class Example:
    """A demonstration as templates show it, passages as texts: the pinned ones and those that support its answer."""

    shown: ThoughtDemonstration

    @property
    def question(self) -> str:
        return self.shown.question

    @property
    def answer(self) -> str:
        return self.shown.answer

    @property
    def pinned(self) -> str:
        return passages_text(self.shown.pinned)

    @property
    def passages(self) -> str:
        return passages_text(self.shown.context(0))

    @property
    def thought(self) -> str:
        """The chain of thought up to where it states the answer."""
        return " ".join(self._thoughts)

    @property
    def steps(self) -> tuple[SubQuestion, ...]:
        return self.shown.steps

    @property
    def triples(self) -> tuple[Triple, ...]:
        return self.shown.triples

    @property
    def implied(self) -> tuple[Triple, ...]:
        return self.shown.implied

    @property
    def entities(self) -> tuple[Entity, ...]:
        """Those the decomposition names first, as the question is about these."""
        asked = {name for step in self.steps for name in (step.triple.head, step.triple.tail)}
        return tuple(sorted(self.shown.entities, key=lambda entity: entity.name not in asked))

    @property
    def masked(self) -> tuple[Triple, ...]:
        """The decomposition as a graph of the question: the answer of step n is ?n."""
        marks: dict[str, str] = {}
        graph = []
        for number, step in enumerate(self.steps, start=1):
            triple = step.triple
            graph.append(Triple(marks.get(triple.head, triple.head), triple.relation, f"?{number}"))
            marks[step.answer] = f"?{number}"
        return tuple(graph)

    @property
    def filled(self) -> tuple[Triple, ...]:
        return tuple(step.triple for step in self.steps)

    @property
    def fill(self) -> Fill:
        """The last step with the passage that answers it."""
        return self._fill(self.steps[-1].passage, self.steps[-1].answer)

    @property
    def unfillable(self) -> Fill:
        """The last step with a passage that does not; as `fill` where there is none."""
        distractors = [passage for passage in self.shown.context(1) if passage not in self.shown.context(0)]
        return self._fill(distractors[0], "unknown") if distractors else self.fill

    @property
    def actions(self) -> tuple[Action, ...]:
        """A search for every passage that answers a step, in their order; one that is known is not searched for."""
        known, told, taken = {passage.id for passage in self.shown.pinned}, "", list[Action]()
        for step in self.steps:
            if step.passage.id not in known:
                known.add(step.passage.id)
                before = f"{told} Now I need to find out:" if told else "I need to find out first:"
                search = f"Search[{step.triple.head} {step.triple.relation}]"
                taken.append(Action(f"{before} {step.question}", search, passages_text((step.passage,))))
            told = self._said(step)
        return (*taken, Action(self.thought, f"Finish[{self.answer}]"))

    @cached_property
    def _thoughts(self) -> list[str]:
        return [sentence for sentence in sentences(self.shown.thoughts) if stated_answer(sentence) is None]

    def _said(self, step: SubQuestion) -> str:
        """The thought that answers a step: it names the head and the tail of the triple, or the tail at least."""
        told = [sentence for sentence in self._thoughts if step.answer in sentence]
        both = [sentence for sentence in told if step.triple.head in sentence]
        return next(iter(both or told), f"So it is {step.answer}.")

    def _fill(self, passage: Passage, value: str) -> Fill:
        step = self.steps[-1]
        around = with_pinned(Question("", self.question, (), pinned=self.shown.pinned), (passage,))
        mark = f"?{len(self.steps)}"
        return Fill(passages_text(around), Triple(step.triple.head, step.triple.relation, mark), step.question, value)


@dataclass(frozen=True)
class Demonstrated:
    """Keys of methods that show questions of a pool; a configuration hands them on to what shows them."""

    demos_from: str
    demonstration_set: Count
    demonstration_count: Natural


@dataclass(frozen=True)
class Pooled(Demonstrated):
    """A method that shows the `demonstration_set`-th sample of `demonstration_count` questions in a form of its own."""

    pool: tuple[ThoughtDemonstration, ...]

    def __post_init__(self) -> None:
        _ = self.examples

    @property
    def shows(self) -> str:
        return f"{self.demos_from}: {set_said(self.pool, self.demonstration_set, self.demonstration_count)}"

    @cached_property
    def examples(self) -> tuple[Example, ...]:
        drawn = demonstration_set(self.pool, self.demonstration_set, self.demonstration_count)
        return tuple(map(Example, drawn))
