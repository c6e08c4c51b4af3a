"""SAFE's labeled steps by rules instead of a teacher: the ideal steps, and steps with one error of each type.

The ideal solution follows the gold decomposition (Figures 15 to 18, without a model): each fact is an attribution step,
a logical step draws the conclusion, and the last step is the answer. As in §3.3, one step is then replaced, so that
step and type of the error are known. This is for tests and small machines, because the texts are less varied than those
of a teacher.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from kgqa.methods.steps.safe_verdict import CORRECT, StepVerdict
from kgqa.scoring.normalization import normalize
from kgqa.types import Hop, Passage, Question

# ours; the released code also varies its phrase
WORDINGS = (
    "According to Passage {n}, {claim}",
    "Passage {n} states that {claim}",
    "As Passage {n} says, {claim}",
    "Passage {n} tells that {claim}",
    "From Passage {n} it is known that {claim}",
    "It is stated in Passage {n} that {claim}",
)
REFERENCE = re.compile(r"#([1-9]\d*)")
_NO_NOUN = re.compile(r"\b(by|at|in|of|from|to|on|with|for)$")
# maximum characters of a sentence that a step quotes
LONGEST = 240
YEAR = re.compile(r"\b(1\d|20)\d\d\b")
_TAGGED = re.compile(r"\((?:Attribution|Logical|Final Answer)\)|\s+")
# number, text and diagnosis of a step with an error
Wrong = tuple[int, str, str]
Numbered = tuple[int, Passage]


class NotTaught(Exception):
    """There is no example. The message is the reason."""


@dataclass(frozen=True, slots=True)
class GoldFact:
    """The fact of one attribution step, in passage number `passage`, from 1."""

    subject: str
    wanted: str  # "the director of Reed Lake"
    value: str
    passage: int
    # positions, from 0, of the facts that give its subject
    needs: tuple[int, ...]

    @property
    def claim(self) -> str:
        return f"{self.wanted} is {self.value}"

    def attribution(self, chance: random.Random, *, claim: str = "", passage: int = 0) -> str:
        """Return the step, or one with another claim or another passage."""
        text = chance.choice(WORDINGS).format(n=passage or self.passage, claim=claim or self.claim)
        return f"{sentence(text)} (Attribution)"


@dataclass(frozen=True, slots=True)
class LogicalPlan:
    """The facts in the order of their steps, and the text of the logical step without its tag."""

    facts: tuple[GoldFact, ...]
    conclusion: str
    wrong_conclusion: str
    answer: str
    wrong_answer: str

    @property
    def last(self) -> int:
        """Return the number of the final step. The logical step is the one before."""
        return len(self.facts) + 2


def plan(question: Question, passages: Sequence[Passage], chance: random.Random) -> LogicalPlan:
    """Make the plan of a question with passages in the order of their numbers.

    Raises NotTaught: no decomposition, facts that are not in the passages, or an answer that does not follow from them.
    """
    if len(question.decomposition) < 2:
        raise NotTaught("no decomposition into two facts or more")
    gold = [
        (number, passage)
        for number, passage in enumerate(passages, start=1)
        if passage.id in question.support
    ]
    facts = _facts(question.decomposition, gold)
    needed = {index for fact in facts for index in fact.needs}
    ends = [index for index in range(len(facts)) if index not in needed]
    if len(ends) > 1 and "comparison" in question.type:
        values = " and ".join(f"{facts[index].value} (Step {index + 1})" for index in ends)
        answer = question.answers[0]
        if answer.lower() in ("yes", "no"):
            same = len({normalize(facts[index].value) for index in ends}) == 1
            if same is not (answer.lower() == "yes"):
                raise NotTaught("the answer does not follow from the facts")
            right, wrong = (f"{values} are the same.", f"{values} are not the same.")[
                :: 1 if same else -1
            ]
            return LogicalPlan(facts, right, wrong, answer, "no" if same else "yes")
        compared = [fact.subject for fact in facts if not fact.needs]
        others = [
            name
            for name in compared
            if name and _bare_name(name) not in map(_bare_name, question.answers)
        ]
        if len(others) == len(compared):
            raise NotTaught("the answer is none of what is compared")
        premise = f"Comparing {values}, what the question asks for is"
    else:
        answer = facts[-1].value
        if normalize(answer) not in map(normalize, question.answers):
            raise NotTaught("the last fact is not the answer")
        names = [fact.value for fact in facts[:-1]] + [passage.title for passage in passages]
        others = [name for name in names if normalize(name) not in ("", normalize(answer))]
        steps = f"Steps 1 to {len(facts)}" if len(facts) > 2 else "Steps 1 and 2"
        premise = f"From {steps} it follows that what the question asks for is"
    if not others:
        raise NotTaught("nothing else to conclude")
    other = chance.choice(others)
    return LogicalPlan(
        facts, sentence(f"{premise} {answer}"), sentence(f"{premise} {other}"), answer, other
    )


def _facts(hops: Sequence[Hop], gold: Sequence[tuple[int, Passage]]) -> tuple[GoldFact, ...]:
    facts = list[GoldFact]()
    for hop in hops:
        needs = [int(number) - 1 for number in REFERENCE.findall(hop.question)]
        if any(index >= len(facts) for index in needs):
            raise NotTaught("a step of the decomposition needs a later one")
        subject, wanted = _parse_hop(
            REFERENCE.sub(lambda match: facts[int(match[1]) - 1].value, hop.question)
        )
        if not needs:
            same = (
                index
                for index, fact in enumerate(facts)
                if _bare_name(fact.value) == _bare_name(subject)
            )
            needs = [*same][:1]
        facts.append(
            GoldFact(subject, wanted, hop.answer, _find_passage(hop, subject, gold), tuple(needs))
        )
    return tuple(facts)


def _parse_hop(text: str) -> tuple[str, str]:
    """Return the subject and the wanted fact of "Petra, director", "Petra >> director" or a question."""
    subject, arrow, relation = text.partition(" >> ")
    if not arrow and not text.rstrip().endswith("?"):
        subject, arrow, relation = text.rpartition(", ")
    if not arrow:
        return "", f'the answer to "{text.strip()}"'
    phrase = f'"{relation}"' if _NO_NOUN.search(relation) else relation
    return subject.strip(), f"the {phrase} of {subject.strip()}"


def _find_passage(hop: Hop, subject: str, gold: Sequence[tuple[int, Passage]]) -> int:
    """Return the number of the gold passage with the value: the one of the hop, or the best title for the subject."""
    candidates = [(number, passage) for number, passage in gold if contains(passage, hop.answer)]
    if not normalize(hop.answer) or not candidates:
        raise NotTaught("no gold passage has the answer of a step")
    words = set(normalize(subject).split())

    def fit(candidate: tuple[int, Passage]) -> tuple[bool, int]:
        _, passage = candidate
        return passage.id == hop.passage_id, len(
            words.intersection(normalize(passage.title).split())
        )

    return max(candidates, key=fit)[0]


def contains(passage: Passage, value: str) -> bool:
    """Return whether title and text have the words of the value in a row."""
    return f" {normalize(value)} " in f" {normalize(f'{passage.title} {passage.text}')} "


def _bare_name(name: str) -> str:
    return normalize(re.sub(r"\s*\([^()]*\)\s*$", "", name))


def sentence(text: str) -> str:
    """Return the text with one final full stop."""
    return text if text.endswith(".") else f"{text}."


@dataclass(frozen=True, slots=True)
class JudgedStep:
    """A step after accepted steps, with the verdict of the evaluator."""

    number: int
    accepted: tuple[str, ...]
    text: str
    verdict: StepVerdict


# the label with its step, or with the reason why there is none
Labeled = tuple[str, JudgedStep | str]


@dataclass(frozen=True)
class Solution:
    """The ideal steps of a question, and the material for errors.

    gold: the ids of the gold passages. others: values of other questions by the wanted relation.
    Each error type of Table 1 has a method with its name. It returns None if the solution has no place for the error.
    """

    plan: LogicalPlan
    shown: Sequence[Passage]
    gold: frozenset[str]
    others: Mapping[str, Sequence[str]]
    chance: random.Random

    @cached_property
    def steps(self) -> tuple[str, ...]:
        attributions = [fact.attribution(self.chance) for fact in self.plan.facts]
        return (*attributions, f"{self.plan.conclusion} (Logical)", format_answer(self.plan.answer))

    def instruction(self, number: int) -> str:
        """Return the guidance before this step."""
        if number <= len(self.plan.facts):
            fact = self.plan.facts[number - 1]
            return f"Take {fact.wanted} from Passage {fact.passage}."
        if number < self.plan.last:
            return "Draw the conclusion that the steps so far lead to."
        return f"Give the final answer as {format_answer(self.plan.answer)}"

    def judge(
        self, number: int, text: str, error: str, diagnosis: str, guidance: str = ""
    ) -> JudgedStep:
        """Return a step after the ideal ones before it, with the ideal step as default guidance."""
        verdict = StepVerdict(error, sentence(diagnosis), guidance or self.instruction(number))
        return JudgedStep(number, self.steps[: number - 1], text, verdict)

    def correct_steps(self) -> Iterator[JudgedStep]:
        """Yield the ideal steps with their verdicts."""
        for number, text in enumerate(self.steps, start=1):
            diagnosis, following = (
                f"Step {number - 1} leads to this answer",
                "Nothing is left to do.",
            )
            if number < self.plan.last:
                diagnosis = "This follows from the steps so far and decides the question"
                following = self.instruction(number + 1)
            if number <= len(self.plan.facts):
                fact = self.plan.facts[number - 1]
                diagnosis = f"Passage {fact.passage} gives {fact.wanted}, which the question needs"
            yield self.judge(number, text, CORRECT, diagnosis, following)

    def label_steps(self, chances: Mapping[str, random.Random]) -> list[Labeled]:
        """Return the right steps, then a step with each of these errors, or the reason why there is none."""
        right = [(CORRECT, step) for step in self.correct_steps()]
        wrong = ((error, self.corrupt(error, chance)) for error, chance in chances.items())
        return right + [
            (error, step or f"the solution has no step for {error}") for error, step in wrong
        ]

    def corrupt(self, error: str, chance: random.Random) -> JudgedStep | None:
        """Return a step with this error, or None if the solution has no place for it."""
        wrong: Wrong | None = getattr(self, re.sub(r"\W", "_", error.lower()))(chance)
        return self.judge(wrong[0], wrong[1], error, wrong[2]) if wrong else None

    def wrong_conclusion(self, _: random.Random) -> Wrong:
        plan = self.plan
        diagnosis = f"Step {plan.last - 1} leads to {plan.answer}, not to {plan.wrong_answer}"
        return plan.last, format_answer(plan.wrong_answer), diagnosis

    def premature_conclusion(self, chance: random.Random) -> Wrong:
        number, missing = self.sample_fact(chance, 2)
        return number, format_answer(self.plan.answer), f"No step has found {missing.wanted} yet"

    def overthinking(self, chance: random.Random) -> Wrong | None:
        gold = [
            (number, passage)
            for number, passage in enumerate(self.shown, start=1)
            if passage.id in self.gold
        ]
        if not (more := sample_sentence(gold, chance)):
            return None
        last = self.plan.last
        diagnosis = f"Step {last - 1} already holds the answer, so no further fact is needed"
        return last, f"Passage {more[0]} says: {more[1]} (Attribution)", diagnosis

    def off_topic(self, chance: random.Random) -> Wrong | None:
        if not (aside := sample_sentence(self.distractors(), chance)):
            return None
        passage, sentence = aside
        diagnosis = f"What Passage {passage} says of {self.shown[passage - 1].title} does not help with the question"
        return (
            self.sample_fact(chance)[0],
            f"Passage {passage} says: {sentence} (Attribution)",
            diagnosis,
        )

    def redundancy(self, chance: random.Random) -> Wrong:
        number, _ = self.sample_fact(chance, 2)
        earlier = chance.randrange(number - 1)
        fact = self.plan.facts[earlier]
        return (
            number,
            fact.attribution(chance),
            f"Step {earlier + 1} already found that {fact.claim}",
        )

    def inefficiency(self, chance: random.Random) -> Wrong:
        number = sample_late(range(1, self.plan.last), chance)
        text = "Now the facts of the steps so far have to be put together. (Logical)"
        if number <= len(self.plan.facts):
            wanted = self.plan.facts[number - 1].wanted
            announced = (f"Next, {wanted} has to be found", f"I will now look for {wanted}")
            text = f"{sentence(chance.choice(announced))} (Attribution)"
        return number, text, "The step announces what is to be done and does nothing of it"

    def contradictory(self, chance: random.Random) -> Wrong | None:
        """Replace the value by another year, or by the value of a similar fact of another question."""
        number, fact = self.sample_fact(chance)
        if year := YEAR.search(fact.value):
            shifts = [shift for shift in range(-20, 21) if shift]
            years = [str(int(year.group()) + shift) for shift in chance.sample(shifts, len(shifts))]
            values = [
                fact.value[: year.start()] + other + fact.value[year.end() :] for other in years
            ]
        else:
            kind = fact.wanted.removesuffix(f" of {fact.subject}")
            listed = [
                *self.others.get(kind, ()),
                *(passage.title for _, passage in self.distractors()),
            ]
            values = chance.sample(listed, len(listed))
        passage = self.shown[fact.passage - 1]
        other = next(
            (value for value in values if normalize(value) and not contains(passage, value)), None
        )
        if other is None:
            return None
        text = fact.attribution(chance, claim=f"{fact.wanted} is {other}")
        return number, text, f"Passage {fact.passage} says {fact.value}, not {other}"

    def unsupported(self, chance: random.Random) -> Wrong | None:
        number, fact = self.sample_fact(chance)
        silent = [
            number for number, passage in self.distractors() if not contains(passage, fact.value)
        ]
        if not silent:
            return None
        passage = chance.choice(silent)
        return (
            number,
            fact.attribution(chance, passage=passage),
            f"Passage {passage} does not say that {fact.claim}",
        )

    def information_miss(self, chance: random.Random) -> Wrong:
        number, fact = self.sample_fact(chance)
        denied = (
            f"Passage {fact.passage} does not give {fact.wanted}",
            f"No passage tells {fact.wanted}",
        )
        text = f"{sentence(chance.choice(denied))} (Attribution)"
        return number, text, f"Passage {fact.passage} gives it: {fact.value}"

    def premature_attribution(self, chance: random.Random) -> Wrong | None:
        """Put a fact before the one that connects its subject with the question."""
        bridges = {need: index for index, fact in enumerate(self.plan.facts) for need in fact.needs}
        if not bridges:
            return None
        number = sample_late([need + 1 for need in bridges], chance)
        fact = self.plan.facts[number - 1]
        diagnosis = f"No step has found yet that {fact.claim}, so {fact.value} is not connected with the question"
        return number, self.steps[bridges[number - 1]], diagnosis

    def logical_fallacy(self, _: random.Random) -> Wrong:
        diagnosis = f"The steps so far lead to this: {self.plan.conclusion}"
        return self.plan.last - 1, f"{self.plan.wrong_conclusion} (Logical)", diagnosis

    def sample_fact(self, chance: random.Random, first: int = 1) -> tuple[int, GoldFact]:
        """Sample an attribution step, and return its number and fact."""
        number = sample_late(range(first, len(self.plan.facts) + 1), chance)
        return number, self.plan.facts[number - 1]

    def distractors(self) -> list[Numbered]:
        """Return the numbered passages that are not gold."""
        return [
            (number, p) for number, p in enumerate(self.shown, start=1) if p.id not in self.gold
        ]


def format_answer(answer: str) -> str:
    return f"####ANSWER: {answer} (Final Answer)"


def sample_late(numbers: Sequence[int], chance: random.Random) -> int:
    """Sample a number i with weight i², because later steps are rarer (the released code does so for Unsupported)."""
    return chance.choices(numbers, [number * number for number in numbers])[0]


def sample_sentence(passages: Sequence[Numbered], chance: random.Random) -> tuple[int, str] | None:
    """Sample a sentence of the passages, but not the first of several, and return it with its passage's number."""
    sentences = list[tuple[int, str]]()
    for number, passage in passages:
        split = passage.sentences or re.split(r"(?<=[.!?])\s+", passage.text)
        plain = [sentence(_TAGGED.sub(" ", text).strip()) for text in split if text.strip()]
        short = [text for text in plain if 20 <= len(text) <= LONGEST]
        sentences += [(number, text) for text in short[1:] or short]
    return chance.choice(sentences) if sentences else None
