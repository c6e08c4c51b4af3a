"""SAFE's evaluator learns to judge one step (Kwon et al., §3.3): right steps, and one error of each type a question."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kgqa.constraints import Share
from kgqa.errors import ConfigError
from kgqa.examples import Dropped, Example, Made, Origin
from kgqa.methods.safe import Safe, read_step, step_line
from kgqa.methods.steps.safe_plan import NoPlan, Plan, plan
from kgqa.methods.steps.safe_rules import JudgedStep, Solution, correct_steps, wrong_step
from kgqa.methods.steps.safe_verdict import CORRECT, Labels, errors
from kgqa.prompting import to_json
from kgqa.protocols import Source
from kgqa.storage import text_digest
from kgqa.types import Passage, Question


@dataclass(frozen=True)
class Planned:
    """A question that has an ideal solution."""

    dataset: str
    method: Safe
    question: Question
    shown: tuple[Passage, ...]
    plan: Plan


@dataclass(frozen=True)
class Case:
    """A step to judge, before it is decided whether it is kept."""

    planned: Planned
    label: str
    step: JudgedStep

    @property
    def id(self) -> str:
        return f"{self.planned.dataset}/{self.planned.question.id}/{self.label}/{self.step.number}"


@dataclass(frozen=True)
class JudgedSteps:
    """Fields as in conf/collect/safe.yaml, which cites the source of each value."""

    sources: Mapping[str, str]
    teacher: Literal["rules"]
    labels: Labels
    balance: Literal["equal", "all"]
    correct: Share
    held_out: Share
    seed: int

    def collect(self, sources: Sequence[Source], advance: Callable[[], None]) -> Iterator[Made]:
        """By question, in the sources' order."""
        planned: list[Planned] = []
        for made in (made for source in sources for made in self._planned(source, advance)):
            if isinstance(made, Dropped):
                yield made
            else:
                planned.append(made)
        others = _others(planned)
        cases: list[Case] = []
        for made in (made for each in planned for made in self._cases(each, others)):
            if isinstance(made, Dropped):
                yield made
            else:
                cases.append(made)
        kept = self._kept(cases)
        for case in cases:
            yield _example(case) if case.id in kept else _dropped(case, "more than its share of the labels")

    def _planned(self, source: Source, advance: Callable[[], None]) -> Iterator[Planned | Dropped]:
        if not isinstance(source.method, Safe):
            raise ConfigError("method: these examples are asked as method=safe asks; leave method= out")
        method = replace(source.method, labels=self.labels)
        for question in source.questions:
            shown = tuple(method.chosen(question))
            try:
                made = plan(question, shown, self._chance(question, "plan"))
            except NoPlan as why:
                yield Dropped(question.id, "question", str(why), Origin(source.dataset, 0, self.teacher))
            else:
                yield Planned(source.dataset, method, question, shown, made)
            advance()

    def _cases(self, planned: Planned, others: Mapping[str, Sequence[str]]) -> Iterator[Case | Dropped]:
        question = planned.question
        solution = Solution.of(planned.plan, planned.shown, question.support, others, self._chance(question, "steps"))
        made = [(CORRECT, step) for step in correct_steps(solution)]
        for error in errors(self.labels):
            if step := wrong_step(error, solution, self._chance(question, error)):
                made.append((error, step))
            else:
                origin = Origin(planned.dataset, 0, self.teacher)
                yield Dropped(question.id, error, f"no place for {error}", origin)
        for label, step in made:
            case = Case(planned, label, step)
            longest = max(len(step.verdict.diagnosis), len(step.verdict.guidance))
            fits = longest <= planned.method.max_feedback_characters
            yield case if fits else _dropped(case, "longer than method.max_feedback_characters")

    def _kept(self, cases: Sequence[Case]) -> set[str]:
        """Each error as often as the rarest that occurs, right steps in proportion; which ones, the seed decides."""
        if self.balance == "all":
            return {case.id for case in cases}
        by_label: dict[str, list[str]] = defaultdict(list)
        for case in sorted(cases, key=lambda case: text_digest(f"{self.seed} {case.id}")):
            by_label[case.label].append(case.id)
        right = by_label.pop(CORRECT, [])
        least = min(map(len, by_label.values()), default=0)
        wrong = [id_ for ids in by_label.values() for id_ in ids[:least]]
        share = round(len(wrong) * self.correct / (1 - self.correct)) if self.correct < 1 else len(right)
        return {*wrong, *right[:share]}

    def _chance(self, question: Question, what: str) -> random.Random:
        return random.Random(f"{self.seed}/{question.id}/{what}")  # noqa: S311 - a draw, not a secret


def _others(planned: Sequence[Planned]) -> dict[str, list[str]]:
    """The values of all facts by what is wanted of a subject, each once."""
    values: dict[str, dict[str, None]] = defaultdict(dict)
    for fact in (fact for each in planned for fact in each.plan.facts if fact.subject):
        values[fact.wanted.removesuffix(f" of {fact.subject}")][fact.value] = None
    return {kind: list(found) for kind, found in values.items()}


def _example(case: Case) -> Example:
    planned, step = case.planned, case.step
    given = planned.method.given(planned.question, list(planned.shown))
    lines = [step_line(number, text) for number, text in enumerate(step.accepted, start=1)]
    return Example(
        id=case.id,
        question=planned.question.id,
        role="feedback",
        prompt=planned.method.judge_prompt({**given, "steps": lines}, step.number, read_step(step.text)),
        target=to_json(step.verdict._asdict()),
        label=case.label,
        origin=Origin(planned.dataset, step.number, "rules"),
    )


def _dropped(case: Case, why: str) -> Dropped:
    origin = Origin(case.planned.dataset, case.step.number, "rules")
    return Dropped(case.planned.question.id, case.label, why, origin)
