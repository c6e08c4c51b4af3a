"""SAFE's labeled steps by rules instead of a teacher: the ideal steps, and steps with one error of each type.

As in §3.3, one step of an ideal solution is replaced, so that step and type of the error are known. This is for tests
and small machines, because the texts are less varied than those of a teacher.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
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


Corrupt = Callable[[Solution, random.Random], JudgedStep | None]  # None: the solution has no step for this error


def corrupt_step(error: str, solution: Solution, chance: random.Random) -> JudgedStep | None:
    return _CORRUPT[error](solution, chance)


def _wrong_conclusion(solution: Solution, chance: random.Random) -> JudgedStep:  # noqa: ARG001
    plan = solution.plan
    diagnosis = f"Step {plan.last - 1} leads to {plan.answer}, not to {plan.wrong_answer}"
    return solution.judge(plan.last, format_answer(plan.wrong_answer), "Wrong Conclusion", diagnosis)


def _premature_conclusion(solution: Solution, chance: random.Random) -> JudgedStep:
    plan = solution.plan
    number = sample_late(range(2, len(plan.facts) + 1), chance)
    missing = plan.facts[number - 1]
    diagnosis = f"No step has found {missing.wanted} yet"
    return solution.judge(number, format_answer(plan.answer), "Premature Conclusion", diagnosis)


def _overthinking(solution: Solution, chance: random.Random) -> JudgedStep | None:
    plan = solution.plan
    gold = [(n, p) for n, p in enumerate(solution.shown, start=1) if p.id in solution.gold]
    if (more := _sample_sentence(gold, chance)) is None:
        return None
    text = f"Passage {more[0]} says: {more[2]} (Attribution)"
    diagnosis = f"Step {plan.last - 1} already holds the answer, so no further fact is needed"
    return solution.judge(plan.last, text, "Overthinking", diagnosis)


def _off_topic(solution: Solution, chance: random.Random) -> JudgedStep | None:
    if (aside := _sample_sentence(solution.distractors(), chance)) is None:
        return None
    number, passage, said = aside
    place = sample_late(range(1, len(solution.plan.facts) + 1), chance)
    diagnosis = f"What Passage {number} says of {passage.title} does not help with the question"
    return solution.judge(place, f"Passage {number} says: {said} (Attribution)", "Off-topic", diagnosis)


def _redundancy(solution: Solution, chance: random.Random) -> JudgedStep:
    facts = solution.plan.facts
    place = sample_late(range(2, len(facts) + 1), chance)
    earlier = chance.randrange(place - 1)
    text = facts[earlier].attribution(chance)
    diagnosis = f"Step {earlier + 1} already found that {facts[earlier].claim}"
    return solution.judge(place, text, "Redundancy", diagnosis)


def _inefficiency(solution: Solution, chance: random.Random) -> JudgedStep:
    facts = solution.plan.facts
    place = sample_late(range(1, solution.plan.last), chance)
    if place <= len(facts):
        announced = (
            f"Next, {facts[place - 1].wanted} has to be found",
            f"I will now look for {facts[place - 1].wanted}",
        )
        text = f"{sentence(chance.choice(announced))} (Attribution)"
    else:
        text = "Now the facts of the steps so far have to be put together. (Logical)"
    return solution.judge(place, text, "Inefficiency", "The step announces what is to be done and does nothing of it")


def _contradictory(solution: Solution, chance: random.Random) -> JudgedStep | None:
    place = sample_late(range(1, len(solution.plan.facts) + 1), chance)
    fact = solution.plan.facts[place - 1]
    if (other := _another_value(fact, solution, chance)) is None:
        return None
    text = fact.attribution(chance, claim=f"{fact.wanted} is {other}")
    return solution.judge(place, text, "Contradictory", f"Passage {fact.passage} says {fact.value}, not {other}")


def _find_unsupported(solution: Solution, chance: random.Random) -> JudgedStep | None:
    place = sample_late(range(1, len(solution.plan.facts) + 1), chance)
    fact = solution.plan.facts[place - 1]
    if not (silent := solution.distractors(fact)):
        return None
    number, _ = chance.choice(silent)
    text = fact.attribution(chance, passage=number)
    return solution.judge(place, text, "Unsupported", f"Passage {number} does not say that {fact.claim}")


def _information_miss(solution: Solution, chance: random.Random) -> JudgedStep:
    place = sample_late(range(1, len(solution.plan.facts) + 1), chance)
    fact = solution.plan.facts[place - 1]
    denied = (f"Passage {fact.passage} does not give {fact.wanted}", f"No passage tells {fact.wanted}")
    text = f"{sentence(chance.choice(denied))} (Attribution)"
    return solution.judge(place, text, "Information Miss", f"Passage {fact.passage} gives it: {fact.value}")


def _premature_attribution(solution: Solution, chance: random.Random) -> JudgedStep | None:
    """Put a fact before the one that connects its subject with the question."""
    facts = solution.plan.facts
    bridged = [(need, place) for place, fact in enumerate(facts) for need in fact.needs]
    if not bridged:
        return None
    numbers = [need + 1 for need, _ in bridged]
    need, place = bridged[numbers.index(sample_late(numbers, chance))]
    diagnosis = (
        f"No step has found yet that {facts[need].claim}, so {facts[need].value} is not connected with the question"
    )
    return solution.judge(need + 1, solution.steps[place], "Premature Attribution", diagnosis)


def _logical_fallacy(solution: Solution, chance: random.Random) -> JudgedStep:  # noqa: ARG001
    plan = solution.plan
    text = f"{plan.wrong_conclusion} (Logical)"
    return solution.judge(plan.last - 1, text, "Logical Fallacy", f"The steps so far lead to this: {plan.conclusion}")


_CORRUPT: Mapping[str, Corrupt] = {
    "Wrong Conclusion": _wrong_conclusion,
    "Premature Conclusion": _premature_conclusion,
    "Overthinking": _overthinking,
    "Off-topic": _off_topic,
    "Redundancy": _redundancy,
    "Inefficiency": _inefficiency,
    "Contradictory": _contradictory,
    "Unsupported": _find_unsupported,
    "Information Miss": _information_miss,
    "Premature Attribution": _premature_attribution,
    "Logical Fallacy": _logical_fallacy,
}


def sample_late(places: Sequence[int] | range, chance: random.Random) -> int:
    """Sample a place i with weight i², because later steps are rarer (the released code does so for Unsupported)."""
    return chance.choices(places, [place * place for place in places])[0]


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
