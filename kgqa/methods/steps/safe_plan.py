"""The ideal solution of a question in SAFE's steps, from its gold decomposition (Figures 15 to 18, without a model).

Each fact is an attribution step, a logical step draws the conclusion, and the last step is the answer. If a fact is not
in a gold passage, there is no solution.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from kgqa.scoring.normalisation import normalise
from kgqa.types import Hop, Passage, Question

WORDINGS = (  # ours; the released code also varies its phrase
    "According to Passage {n}, {claim}",
    "Passage {n} states that {claim}",
    "As Passage {n} says, {claim}",
    "Passage {n} tells that {claim}",
    "From Passage {n} it is known that {claim}",
    "It is stated in Passage {n} that {claim}",
)
REFERENCE = re.compile(r"#([1-9]\d*)")
_NO_NOUN = re.compile(r"\b(by|at|in|of|from|to|on|with|for)$")


class NoPlan(Exception):
    """The reason why a question has no ideal solution."""


@dataclass(frozen=True, slots=True)
class GoldFact:
    """The fact of one attribution step, in passage number `passage`, from 1."""

    subject: str
    wanted: str  # "the director of Reed Lake"
    value: str
    passage: int
    needs: tuple[int, ...]  # positions, from 0, of the facts that give its subject

    @property
    def claim(self) -> str:
        return f"{self.wanted} is {self.value}"

    def attribution(self, chance: random.Random, *, claim: str = "", passage: int = 0) -> str:
        """Return the step, or one with another claim or another passage."""
        text = chance.choice(WORDINGS).format(n=passage or self.passage, claim=claim or self.claim)
        return f"{sentence(text)} (Attribution)"


@dataclass(frozen=True, slots=True)
class Plan:
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


def plan(question: Question, shown: Sequence[Passage], chance: random.Random) -> Plan:
    """Make the plan of a question with passages in the order of their numbers.

    Raises:
        NoPlan: no decomposition, facts that are not in the passages, or an answer that does not follow from them.
    """
    if len(question.decomposition) < 2:
        raise NoPlan("no decomposition into two facts or more")
    gold = [(number, passage) for number, passage in enumerate(shown, start=1) if passage.id in question.support]
    facts = _facts(question.decomposition, gold)
    needed = {index for fact in facts for index in fact.needs}
    ends = [index for index in range(len(facts)) if index not in needed]
    if len(ends) > 1 and "comparison" in question.type:
        found = " and ".join(f"{facts[index].value} (Step {index + 1})" for index in ends)
        answer = question.answers[0]
        if answer.lower() in ("yes", "no"):
            same = len({normalise(facts[index].value) for index in ends}) == 1
            if same is not (answer.lower() == "yes"):
                raise NoPlan("the answer does not follow from the facts")
            right, wrong = (f"{found} are the same.", f"{found} are not the same.")[:: 1 if same else -1]
            return Plan(facts, right, wrong, answer, "no" if same else "yes")
        compared = [fact.subject for fact in facts if not fact.needs]
        others = [name for name in compared if name and _bare_name(name) not in map(_bare_name, question.answers)]
        if len(others) == len(compared):
            raise NoPlan("the answer is none of what is compared")
        premise = f"Comparing {found}, what the question asks for is"
    else:
        answer = facts[-1].value
        if normalise(answer) not in map(normalise, question.answers):
            raise NoPlan("the last fact is not the answer")
        names = [fact.value for fact in facts[:-1]] + [passage.title for passage in shown]
        others = [name for name in names if normalise(name) not in ("", normalise(answer))]
        steps = f"Steps 1 to {len(facts)}" if len(facts) > 2 else "Steps 1 and 2"
        premise = f"From {steps} it follows that what the question asks for is"
    if not others:
        raise NoPlan("nothing else to conclude")
    other = chance.choice(others)
    return Plan(facts, sentence(f"{premise} {answer}"), sentence(f"{premise} {other}"), answer, other)


def _facts(hops: Sequence[Hop], gold: Sequence[tuple[int, Passage]]) -> tuple[GoldFact, ...]:
    facts = list[GoldFact]()
    for hop in hops:
        needs = [int(number) - 1 for number in REFERENCE.findall(hop.question)]
        if any(index >= len(facts) for index in needs):
            raise NoPlan("a step of the decomposition needs a later one")
        subject, wanted = _parse_hop(REFERENCE.sub(lambda match: facts[int(match[1]) - 1].value, hop.question))
        if not needs:
            same = (index for index, fact in enumerate(facts) if _bare_name(fact.value) == _bare_name(subject))
            needs = [*same][:1]
        facts.append(GoldFact(subject, wanted, hop.answer, _find_passage(hop, subject, gold), tuple(needs)))
    return tuple(facts)


def _parse_hop(text: str) -> tuple[str, str]:
    """Return the subject and the wanted fact of "Petra, director", "Petra >> director" or a question."""
    subject, arrow, relation = text.partition(" >> ")
    if not arrow and not text.rstrip().endswith("?"):
        subject, arrow, relation = text.rpartition(", ")
    if not arrow:
        return "", f'the answer to "{text.strip()}"'
    shown = f'"{relation}"' if _NO_NOUN.search(relation) else relation
    return subject.strip(), f"the {shown} of {subject.strip()}"


def _find_passage(hop: Hop, subject: str, gold: Sequence[tuple[int, Passage]]) -> int:
    """Return the number of the gold passage with the value: the one of the hop, or the best title for the subject."""
    candidates = [(number, passage) for number, passage in gold if contains(passage, hop.answer)]
    if not normalise(hop.answer) or not candidates:
        raise NoPlan("no gold passage has the answer of a step")
    words = set(normalise(subject).split())

    def fit(candidate: tuple[int, Passage]) -> tuple[bool, int]:
        _, passage = candidate
        return passage.id == hop.passage_id, len(words.intersection(normalise(passage.title).split()))

    return max(candidates, key=fit)[0]


def contains(passage: Passage, value: str) -> bool:
    """Return whether title and text have the words of the value in a row."""
    return f" {normalise(value)} " in f" {normalise(f'{passage.title} {passage.text}')} "


def _bare_name(name: str) -> str:
    return normalise(re.sub(r"\s*\([^()]*\)\s*$", "", name))


def sentence(text: str) -> str:
    """Return the text with one final full stop."""
    return text if text.endswith(".") else f"{text}."
