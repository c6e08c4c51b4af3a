"""SAFE's evaluator learns to judge one step (Kwon et al., §3.3): right steps, and one error of each type a question.

By rules from gold decompositions, or by a teacher; with cases that a trained evaluator got wrong, and with questions
that verification flagged.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from kgqa.artifacts.examples import Asking, Dropped, Example, Made, NotTaught, Origin, Source
from kgqa.artifacts.metrics import Metrics
from kgqa.artifacts.trace import read_trace
from kgqa.calls import Program
from kgqa.errors import ConfigError
from kgqa.methods.safe import Safe, read_step, step_line
from kgqa.methods.safe_teaching import Taught, Teacher
from kgqa.methods.steps.safe_plan import NoPlan, Plan, plan
from kgqa.methods.steps.safe_rules import JudgedStep, Solution, correct_steps, corrupt_step
from kgqa.methods.steps.safe_verdict import CORRECT, Labels, errors
from kgqa.prompting import to_json
from kgqa.scoring.metrics import score
from kgqa.types import Json, Question
from kgqa.util.fs import text_digest
from kgqa.util.validators import Count, Natural, Share

HARD = "hard case"
FLAGGED = ", of a flagged question"


@dataclass(frozen=True)
class Asked:
    """A question, as its method asks it. `made_by`: who labels its steps."""

    dataset: str
    method: Safe
    question: Question
    made_by: str

    @property
    def flagged(self) -> bool:
        return self.made_by.endswith(FLAGGED)

    def dropped(self, what: str, why: str, place: int = 0) -> Dropped:
        return Dropped(self.question.id, what, why, Origin(self.dataset, place, self.made_by))


@dataclass(frozen=True)
class Case:
    """A step to judge, before it is decided whether it is kept."""

    asked: Asked
    label: str
    step: JudgedStep

    @property
    def id(self) -> str:
        maker = f"{self.asked.made_by}/" if self.asked.made_by.startswith(HARD) else ""
        return f"{self.asked.dataset}/{maker}{self.asked.question.id}/{self.label}/{self.step.number}"

    def example(self) -> Example:
        asked, step = self.asked, self.step
        given = asked.method.prompt_values(asked.question, asked.method.sample_passages(asked.question))
        lines = [step_line(number, text) for number, text in enumerate(step.accepted, start=1)]
        return Example(
            id=self.id,
            question=asked.question.id,
            role="feedback",
            prompt=asked.method.judge_prompt({**given, "steps": lines}, step.number, read_step(step.text)),
            target=to_json(step.verdict._asdict()),
            label=self.label,
            origin=Origin(asked.dataset, step.number, asked.made_by),
        )

    def dropped(self, why: str) -> Dropped:
        return self.asked.dropped(self.label, why, self.step.number)


@dataclass(frozen=True)
class Wrong:
    """A wrong answer of a run, with the attempts in its notes."""

    asked: Asked
    answer: str
    attempts: Sequence[Json]

    def program(self, teacher: Teacher) -> Program[tuple[str, JudgedStep]]:
        return teacher.hard_case(self.asked.question, self.answer, self.attempts)


@dataclass(frozen=True)
class JudgedSteps:
    """Fields as in conf/collect/safe.yaml, which cites the source of each value."""

    sources: Mapping[str, str]
    verdicts: Mapping[str, str | None]
    teacher: Literal["rules", "model"]
    labels: Labels
    balance: Literal["equal", "all"]
    correct: Share
    hard_cases: Natural
    noise: Natural
    errors_each: Natural
    correct_each: Natural
    audit: bool
    temperature: float
    max_tokens: Count
    max_step_tokens: Count
    held_out: Share
    seed: int

    @property
    def asks(self) -> bool:
        return self.teacher == "model"

    def collect(self, sources: Sequence[Source], advance: Callable[[], None]) -> Iterator[Made]:
        """Yield the examples of the rules, by question in the order of the sources."""
        asked = list(self._ask(sources, "rules"))
        plans: list[tuple[Asked, Plan]] = []
        for each in asked:
            try:
                shown = tuple(each.method.sample_passages(each.question))
                plans.append((each, plan(each.question, shown, self._chance(each.question, "plan"))))
            except NoPlan as why:
                yield each.dropped("question", str(why))
            advance()
        others = _others(made for _, made in plans)
        yield from self._split(chain.from_iterable(self._by_rules(each, made, others) for each, made in plans))

    def taught(self, sources: Sequence[Source], ask: Asking) -> Iterator[Made]:
        """Yield the same by a teacher, then hard cases."""
        asked = list(self._ask([source for source in sources if source.run is None], "teacher"))
        wrong = [one for source in sources if source.run is not None for one in self._wrong(source)]
        of_questions = [
            (f"question {place}", self.teaches(each.method).teach(each.question, self._chance(each.question, "teach")))
            for place, each in enumerate(asked)
        ]
        of_runs = [(f"hard case {n}", one.program(self.teaches(one.asked.method))) for n, one in enumerate(wrong)]
        ended = ask([*of_questions, *of_runs])
        made = (self._by_teacher(each, ended[f"question {place}"]) for place, each in enumerate(asked))
        yield from self._split(chain.from_iterable(made))
        yield from self._hard(wrong, [ended[f"hard case {place}"] for place in range(len(wrong))])

    def _ask(self, sources: Sequence[Source], made_by: str) -> Iterator[Asked]:
        for source in sources:
            for questions, who in ((source.questions, made_by), (source.noise, made_by + FLAGGED)):
                for question in questions:
                    yield Asked(source.dataset, self._method(source), question, who)

    def _method(self, source: Source) -> Safe:
        if not isinstance(source.method, Safe):
            raise ConfigError("method: these examples are asked as method=safe asks; leave method= out")
        return replace(source.method, labels=self.labels)

    def teaches(self, method: Safe) -> Teacher:
        return Teacher(
            method, self.errors_each, self.correct_each, self.audit, self.temperature, self.max_tokens,
            self.max_step_tokens,
        )  # fmt: skip

    def _by_rules(self, asked: Asked, made: Plan, others: Mapping[str, Sequence[str]]) -> Iterator[Case | Dropped]:
        question, shown = asked.question, tuple(asked.method.sample_passages(asked.question))
        solution = Solution.of(made, shown, question.support, others, self._chance(question, "steps"))
        for step in correct_steps(solution):
            yield Case(asked, CORRECT, step)
        for error in errors(self.labels):
            if wrong := corrupt_step(error, solution, self._chance(question, error)):
                yield Case(asked, error, wrong)
            else:
                yield asked.dropped(error, f"no place for {error}")

    def _by_teacher(self, asked: Asked, result: object) -> Iterator[Case | Dropped]:
        if isinstance(result, NotTaught):
            yield asked.dropped("question", str(result))
            return
        assert isinstance(result, Taught)
        yield from (Case(asked, label, step) for label, step in result.steps)
        yield from (asked.dropped(what, why) for what, why in result.dropped)

    def _split(self, made: Iterable[Case | Dropped]) -> Iterator[Made]:
        """Yield examples of the cases that are kept; of flagged questions `noise` of them."""
        cases: list[Case] = []
        for one in made:
            if isinstance(one, Dropped):
                yield one
            elif _longest(one) > one.asked.method.max_feedback_characters:
                yield one.dropped("longer than method.max_feedback_characters")
            else:
                cases.append(one)
        kept = self._keep([case for case in cases if not case.asked.flagged])
        flagged = self._keep([case for case in cases if case.asked.flagged])
        kept |= set(sorted(flagged, key=self._draw)[: self.noise])
        for case in cases:
            yield case.example() if case.id in kept else case.dropped("more than its share of the labels")

    def _wrong(self, source: Source) -> Iterator[Wrong]:
        """Yield the run's wrong answers whose steps were judged."""
        run, method = source.run, self._method(source)
        assert run is not None
        profile = Metrics.read(run).profile
        for traced in read_trace(run):
            said, question = traced.prediction, traced.question
            attempts, answer = said.notes.get("attempts"), said.scored_answer or ""
            if said.error is None and attempts and score(answer, question.answers, profile)["em"] < 1:
                yield Wrong(Asked(source.dataset, method, question, f"{HARD} of {run.name}"), answer, attempts)

    def _hard(self, wrong: Sequence[Wrong], results: Sequence[object]) -> Iterator[Made]:
        """Yield up to `hard_cases` examples of the first error that the evaluator missed (§3.3)."""
        cases: list[Case] = []
        for one, result in zip(wrong, results, strict=True):
            if isinstance(result, NotTaught):
                yield one.asked.dropped("hard case", str(result))
            else:
                assert isinstance(result, tuple)
                cases.append(Case(one.asked, *result))
        kept = set(sorted((case.id for case in cases), key=self._draw)[: self.hard_cases])
        for case in cases:
            yield case.example() if case.id in kept else case.dropped("more than collect.hard_cases")

    def _draw(self, name: str) -> str:
        return text_digest(f"{self.seed} {name}")

    def _keep(self, cases: Sequence[Case]) -> set[str]:
        """Return the ids of a balanced sample: each error as often as the rarest, right steps in proportion."""
        if self.balance == "all":
            return {case.id for case in cases}
        by_label: dict[str, list[str]] = defaultdict(list)
        for case in sorted(cases, key=lambda case: self._draw(case.id)):
            by_label[case.label].append(case.id)
        right = by_label.pop(CORRECT, [])
        least = min(map(len, by_label.values()), default=0)
        wrong = [id_ for ids in by_label.values() for id_ in ids[:least]]
        share = round(len(wrong) * self.correct / (1 - self.correct)) if self.correct < 1 else len(right)
        return {*wrong, *right[:share]}

    def _chance(self, question: Question, what: str) -> random.Random:
        return random.Random(f"{self.seed}/{question.id}/{what}")  # noqa: S311 - a draw, not a secret


def _others(plans: Iterable[Plan]) -> dict[str, list[str]]:
    """Return the values of all facts by what is wanted of a subject, each once."""
    values: dict[str, dict[str, None]] = defaultdict(dict)
    for fact in (fact for each in plans for fact in each.facts if fact.subject):
        values[fact.wanted.removesuffix(f" of {fact.subject}")][fact.value] = None
    return {kind: list(found) for kind, found in values.items()}


def _longest(case: Case) -> int:
    return max(len(case.step.verdict.diagnosis), len(case.step.verdict.guidance))
