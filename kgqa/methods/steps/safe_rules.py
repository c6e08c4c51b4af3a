"""SAFE's labeled steps by rules instead of a teacher: the ideal steps, and steps with one error of each type.

As in §3.3, one step of an ideal solution is replaced, so that step and type of the error are known. This is for tests
and small machines, because the texts are less varied than those of a teacher.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kgqa.methods.steps.safe_plan import GoldFact, Plan, sentence
from kgqa.methods.steps.safe_verdict import CORRECT, StepVerdict
from kgqa.scoring.normalisation import normalise
from kgqa.types import Passage

LONGEST = 240  # maximum characters of a sentence that a step quotes
YEAR = re.compile(r"\b(1\d|20)\d\d\b")
_TAGGED = re.compile(r"\((?:Attribution|Logical|Final Answer)\)|\s+")
FINAL = "(Final Answer)"


@dataclass(frozen=True, slots=True)
class JudgedStep:
    """A step after accepted steps, with the verdict of the evaluator."""

    number: int
    accepted: tuple[str, ...]
    text: str
    verdict: StepVerdict


@dataclass(frozen=True)
class Solution:
    """The ideal steps of a question, and the material for errors."""

    plan: Plan
    shown: Sequence[Passage]
    gold: frozenset[str]  # ids
    others: Mapping[str, Sequence[str]]  # values of other questions by the wanted relation
    steps: tuple[str, ...]

    @classmethod
    def of(
        cls,
        plan: Plan,
        shown: Sequence[Passage],
        gold: frozenset[str],
        others: Mapping[str, Sequence[str]],
        chance: random.Random,
    ) -> Solution:
        attributions = [fact.attribution(chance) for fact in plan.facts]
        ending = (f"{plan.conclusion} (Logical)", format_answer(plan.answer))
        return cls(plan, shown, gold, others, (*attributions, *ending))

    def instruction(self, number: int) -> str:
        """Return the guidance before this step."""
        if number <= len(self.plan.facts):
            return f"{self.plan.facts[number - 1].instruction}."
        if number < self.plan.last:
            return "Draw the conclusion that the steps so far lead to."
        return f"Give the final answer as {format_answer(self.plan.answer)}"

    def judge(self, number: int, text: str, error: str, diagnosis: str, guidance: str = "") -> JudgedStep:
        """Return a step after the ideal ones before it, with the ideal step as default guidance."""
        verdict = StepVerdict(error, sentence(diagnosis), guidance or self.instruction(number))
        return JudgedStep(number, self.steps[: number - 1], text, verdict)

    def distractors(self, fact: GoldFact | None = None) -> list[tuple[int, Passage]]:
        """Return the numbered passages that are not gold, and do not contain the fact if one is given."""
        listed = [(n, p) for n, p in enumerate(self.shown, start=1) if p.id not in self.gold]
        return [(n, p) for n, p in listed if fact is None or not _contains(p, fact.value)]


def format_answer(answer: str) -> str:
    return f"####ANSWER: {answer} {FINAL}"


def correct_steps(solution: Solution) -> Iterator[JudgedStep]:
    plan = solution.plan
    for number, text in enumerate(solution.steps, start=1):
        if number <= len(plan.facts):
            fact = plan.facts[number - 1]
            diagnosis = f"Passage {fact.passage} gives {fact.wanted}, which the question needs"
        elif number < plan.last:
            diagnosis = "This follows from the steps so far and decides the question"
        else:
            diagnosis = f"Step {number - 1} leads to this answer"
        following = solution.instruction(number + 1) if number < plan.last else "Nothing is left to do."
        yield solution.judge(number, text, CORRECT, diagnosis, following)


def corrupt_step(error: str, solution: Solution, chance: random.Random) -> JudgedStep | None:
    """Return a step with this error, or None if the solution has no place for it."""
    corrupt = getattr(Corruption(solution, solution.plan, chance), re.sub(r"\W", "_", error.lower()))
    if (made := corrupt()) is None:
        return None
    number, text, diagnosis = made
    return solution.judge(number, text, error, diagnosis)


Wrong = tuple[int, str, str]  # number, text and diagnosis of a step with an error


@dataclass(frozen=True)
class Corruption:
    """One method for each error, with its name in Table 1. None: the solution has no place for it."""

    solution: Solution
    plan: Plan
    chance: random.Random

    def sample_number(self, first: int = 1) -> int:
        """Sample the number of an attribution step."""
        return sample_late(range(first, len(self.plan.facts) + 1), self.chance)

    def wrong_conclusion(self) -> Wrong:
        plan = self.plan
        diagnosis = f"Step {plan.last - 1} leads to {plan.answer}, not to {plan.wrong_answer}"
        return plan.last, format_answer(plan.wrong_answer), diagnosis

    def premature_conclusion(self) -> Wrong:
        number = self.sample_number(2)
        missing = self.plan.facts[number - 1]
        return number, format_answer(self.plan.answer), f"No step has found {missing.wanted} yet"

    def overthinking(self) -> Wrong | None:
        solution, last = self.solution, self.plan.last
        gold = [(n, p) for n, p in enumerate(solution.shown, start=1) if p.id in solution.gold]
        if (more := _sample_sentence(gold, self.chance)) is None:
            return None
        text = f"Passage {more[0]} says: {more[2]} (Attribution)"
        return last, text, f"Step {last - 1} already holds the answer, so no further fact is needed"

    def off_topic(self) -> Wrong | None:
        if (aside := _sample_sentence(self.solution.distractors(), self.chance)) is None:
            return None
        number, passage, said = aside
        diagnosis = f"What Passage {number} says of {passage.title} does not help with the question"
        return self.sample_number(), f"Passage {number} says: {said} (Attribution)", diagnosis

    def redundancy(self) -> Wrong:
        number = self.sample_number(2)
        earlier = self.chance.randrange(number - 1)
        fact = self.plan.facts[earlier]
        return number, fact.attribution(self.chance), f"Step {earlier + 1} already found that {fact.claim}"

    def inefficiency(self) -> Wrong:
        number = sample_late(range(1, self.plan.last), self.chance)
        text = "Now the facts of the steps so far have to be put together. (Logical)"
        if number <= len(self.plan.facts):
            wanted = self.plan.facts[number - 1].wanted
            announced = (f"Next, {wanted} has to be found", f"I will now look for {wanted}")
            text = f"{sentence(self.chance.choice(announced))} (Attribution)"
        return number, text, "The step announces what is to be done and does nothing of it"

    def contradictory(self) -> Wrong | None:
        number = self.sample_number()
        fact = self.plan.facts[number - 1]
        if (other := _another_value(fact, self.solution, self.chance)) is None:
            return None
        text = fact.attribution(self.chance, claim=f"{fact.wanted} is {other}")
        return number, text, f"Passage {fact.passage} says {fact.value}, not {other}"

    def unsupported(self) -> Wrong | None:
        number = self.sample_number()
        fact = self.plan.facts[number - 1]
        if not (silent := self.solution.distractors(fact)):
            return None
        passage, _ = self.chance.choice(silent)
        text = fact.attribution(self.chance, passage=passage)
        return number, text, f"Passage {passage} does not say that {fact.claim}"

    def information_miss(self) -> Wrong:
        number = self.sample_number()
        fact = self.plan.facts[number - 1]
        denied = (f"Passage {fact.passage} does not give {fact.wanted}", f"No passage tells {fact.wanted}")
        text = f"{sentence(self.chance.choice(denied))} (Attribution)"
        return number, text, f"Passage {fact.passage} gives it: {fact.value}"

    def premature_attribution(self) -> Wrong | None:
        """Put a fact before the one that connects its subject with the question."""
        facts = self.plan.facts
        bridged = [(need, number) for number, fact in enumerate(facts) for need in fact.needs]
        if not bridged:
            return None
        numbers = [need + 1 for need, _ in bridged]
        need, number = bridged[numbers.index(sample_late(numbers, self.chance))]
        diagnosis = (
            f"No step has found yet that {facts[need].claim}, so {facts[need].value} is not connected with the question"
        )
        return need + 1, self.solution.steps[number], diagnosis

    def logical_fallacy(self) -> Wrong:
        diagnosis = f"The steps so far lead to this: {self.plan.conclusion}"
        return self.plan.last - 1, f"{self.plan.wrong_conclusion} (Logical)", diagnosis


def sample_late(numbers: Sequence[int] | range, chance: random.Random) -> int:
    """Sample a number i with weight i², because later steps are rarer (the released code does so for Unsupported)."""
    return chance.choices(numbers, [number * number for number in numbers])[0]


def _another_value(fact: GoldFact, solution: Solution, chance: random.Random) -> str | None:
    """Return another year, or the value of a similar fact of another question, that the passage does not contain."""
    passage = solution.shown[fact.passage - 1]
    if year := YEAR.search(fact.value):
        shifts = [n for n in range(-20, 21) if n]
        years = [str(int(year.group()) + shift) for shift in chance.sample(shifts, len(shifts))]
        changed = [fact.value[: year.start()] + other + fact.value[year.end() :] for other in years]
    else:
        kind = fact.wanted.removesuffix(f" of {fact.subject}")
        listed = [*solution.others.get(kind, ()), *(other.title for _, other in solution.distractors())]
        changed = chance.sample(listed, len(listed))
    return next((other for other in changed if normalise(other) and not _contains(passage, other)), None)


def _contains(passage: Passage, value: str) -> bool:
    return f" {normalise(value)} " in f" {normalise(f'{passage.title} {passage.text}')} "


def _sample_sentence(passages: Sequence[tuple[int, Passage]], chance: random.Random) -> tuple[int, Passage, str] | None:
    """Sample a sentence of the passages, but not the first of several."""
    said = [(number, passage, text) for number, passage in passages for text in _sentences(passage)]
    return chance.choice(said) if said else None


def _sentences(passage: Passage) -> list[str]:
    split = passage.sentences or tuple(re.split(r"(?<=[.!?])\s+", passage.text))
    plain = [sentence(_TAGGED.sub(" ", text).strip()) for text in split if text.strip()]
    short = [text for text in plain if 20 <= len(text) <= LONGEST]
    return short[1:] or short
