"""The ideal solution of a question in SAFE's steps, from its gold decomposition (Figures 15 to 18, without a model).

Each fact is an attribution step, a logical step draws the conclusion, and the last step is the answer. If a fact is not
in a gold passage, there is no solution.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

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
REFERENCE = re.compile(r"#(\d+)")
CLOSED = {"yes": True, "no": False}
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

    @property
    def instruction(self) -> str:
        return f"Take {self.wanted} from Passage {self.passage}"


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
    gold = [(index, passage) for index, passage in enumerate(shown, start=1) if passage.id in question.support]
    facts = _order_facts(list(_facts(question.decomposition, gold)))
    leaves = [index for index in range(len(facts)) if not any(index in fact.needs for fact in facts)]
    if len(leaves) > 1 and "comparison" in question.type:
        return _comparison_plan(question, facts, leaves, chance)
    if len(leaves) > 1:  # one chain with different spellings of names
        chained = enumerate(facts)
        facts = tuple(replace(fact, needs=fact.needs or ((index - 1,) if index else ())) for index, fact in chained)
    return _chain_plan(question, facts, shown, chance)


def _facts(hops: Sequence[Hop], gold: Sequence[tuple[int, Passage]]) -> Iterator[GoldFact]:
    known: list[tuple[str, str]] = []  # subjects and values so far
    for hop in hops:
        needs = tuple(int(number) - 1 for number in REFERENCE.findall(hop.question) if int(number) <= len(known))
        text = REFERENCE.sub(lambda found: _value(known, int(found[1])), hop.question)
        subject, wanted = _parse_hop(text)
        if not needs:
            same = [index for index, (_, value) in enumerate(known) if _bare_name(value) == _bare_name(subject)]
            needs = tuple(same[:1])
        known.append((subject, hop.answer))
        yield GoldFact(subject, wanted, hop.answer, _passage(hop, subject, gold), needs)


def _value(known: Sequence[tuple[str, str]], number: int) -> str:
    if number > len(known):
        raise NoPlan("a step of the decomposition needs a later one")
    return known[number - 1][1]


def _parse_hop(text: str) -> tuple[str, str]:
    """Return the subject and the wanted fact of "Petra, director", "Petra >> director" or a question."""
    subject, arrow, relation = text.partition(" >> ")
    if not arrow and not text.rstrip().endswith("?"):
        subject, arrow, relation = text.rpartition(", ")
    if not arrow:
        return "", f'the answer to "{text.strip()}"'
    shown = f'"{relation}"' if _NO_NOUN.search(relation) else relation
    return subject.strip(), f"the {shown} of {subject.strip()}"


def _passage(hop: Hop, subject: str, gold: Sequence[tuple[int, Passage]]) -> int:
    """Return the number of the gold passage with the value: the one of the hop, or the best title for the subject."""
    value = normalise(hop.answer)
    candidates = [(n, p) for n, p in gold if f" {value} " in f" {normalise(f'{p.title} {p.text}')} "]
    if not value or not candidates:
        raise NoPlan("no gold passage has the answer of a step")
    words = set(normalise(subject).split())
    return max(
        candidates, key=lambda at: (at[1].id == hop.passage_id, len(words & set(normalise(at[1].title).split())))
    )[0]


def _bare_name(name: str) -> str:
    return normalise(re.sub(r"\s*\([^()]*\)\s*$", "", name))


def _order_facts(facts: list[GoldFact]) -> tuple[GoldFact, ...]:
    """Order each fact before those that need it: the film of A, its director, then those of B (Figure 15, plan 4)."""
    order: list[int] = []

    def visit(index: int) -> None:
        if index not in order and all(need in order for need in facts[index].needs):
            order.append(index)
            for other, fact in enumerate(facts):
                if index in fact.needs:
                    visit(other)

    for index, fact in enumerate(facts):
        if not fact.needs:
            visit(index)
    if len(order) != len(facts):
        raise NoPlan("a step of the decomposition needs itself")
    at = {index: new for new, index in enumerate(order)}
    ordered = (facts[index] for index in order)
    return tuple(replace(fact, needs=tuple(sorted(at[need] for need in fact.needs))) for fact in ordered)


def _chain_plan(
    question: Question, facts: tuple[GoldFact, ...], shown: Sequence[Passage], chance: random.Random
) -> Plan:
    """Make a plan in which the last fact is the answer."""
    if normalise(facts[-1].value) not in map(normalise, question.answers):
        raise NoPlan("the last fact is not the answer")
    steps = f"From Steps 1 to {len(facts)}" if len(facts) > 2 else "From Steps 1 and 2"
    answer = facts[-1].value
    wrong = [fact.value for fact in facts[:-1]] + [passage.title for passage in shown]
    others = [other for other in wrong if normalise(other) and normalise(other) != normalise(answer)]
    if not others:
        raise NoPlan("nothing else to conclude")
    other = chance.choice(others)
    said = f"{steps} it follows that what the question asks for is"
    return Plan(facts, sentence(f"{said} {answer}"), sentence(f"{said} {other}"), answer, other)


def _comparison_plan(
    question: Question, facts: tuple[GoldFact, ...], leaves: Sequence[int], chance: random.Random
) -> Plan:
    """Make a plan that compares the last facts of several chains."""
    values = [facts[index].value for index in leaves]
    found = " and ".join(f"{facts[index].value} (Step {index + 1})" for index in leaves)
    answer = question.answers[0]
    if (closed := CLOSED.get(answer.lower())) is not None:
        same = len({normalise(value) for value in values}) == 1
        if same is not closed:
            raise NoPlan("the answer does not follow from the facts")
        said = [f"{found} are the same.", f"{found} are not the same."]
        right, wrong = said if same else said[::-1]
        return Plan(facts, right, wrong, answer, "no" if same else "yes")
    roots = [fact.subject for fact in facts if not fact.needs]
    others = [root for root in roots if root and _bare_name(root) not in map(_bare_name, question.answers)]
    if len(others) == len(roots) or not others:
        raise NoPlan("the answer is none of what is compared")
    other = chance.choice(others)
    compared = f"Comparing {found}, what the question asks for is"
    return Plan(facts, sentence(f"{compared} {answer}"), sentence(f"{compared} {other}"), answer, other)


def sentence(text: str) -> str:
    """Return the text with one final full stop."""
    return text if text.endswith(".") else f"{text}."
