"""SAFE's evaluator learns to judge one step (Kwon et al., §3.3): right steps, and one error of each type a question.

By rules from gold decompositions, or by a teacher; with cases that a trained evaluator got wrong, and with questions
that verification flagged.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from kgqa.artifacts.examples import CallTeacher, Dropped, Example, Made, NotTaught, Origin, Recipe, Source
from kgqa.artifacts.metrics import Metrics
from kgqa.artifacts.trace import read_trace
from kgqa.methods.safe import Safe, read_step, step_line
from kgqa.methods.safe_teaching import Teacher, TeacherSettings
from kgqa.methods.steps.safe_plan import NoPlan, Plan, plan
from kgqa.methods.steps.safe_rules import JudgedStep, Solution
from kgqa.methods.steps.safe_verdict import CORRECT, Labels, errors
from kgqa.prompting import to_json
from kgqa.scoring.metrics import score
from kgqa.types import Json, Question
from kgqa.util.fs import text_digest
from kgqa.util.validators import Natural, Share

HARD = "hard case"
FLAGGED = ", of a flagged question"


@dataclass(frozen=True)
class Case:
    """A step to judge that can become an example. `made_by`: who labels it."""

    dataset: str
    method: Safe
    question: Question
    made_by: str
    label: str = ""
    step: JudgedStep | None = None

    @property
    def id(self) -> str:
        assert self.step is not None
        maker = f"{self.made_by}/" if self.made_by.startswith(HARD) else ""
        return f"{self.dataset}/{maker}{self.question.id}/{self.label}/{self.step.number}"

    def example(self) -> Example:
        step, method = self.step, self.method
        assert step is not None
        values = method.prompt_values(self.question, method.sample_passages(self.question))
        lines = [step_line(number, text) for number, text in enumerate(step.accepted, start=1)]
        return Example(
            id=self.id,
            question=self.question.id,
            role="feedback",
            prompt=method.judge_prompt({**values, "steps": lines}, step.number, read_step(step.text)),
            target=to_json(step.verdict._asdict()),
            label=self.label,
            origin=Origin(self.dataset, step.number, self.made_by),
        )

    def drop(self, why: str, what: str = "") -> Dropped:
        number = self.step.number if self.step else 0
        return Dropped(self.question.id, what or self.label, why, Origin(self.dataset, number, self.made_by))


@dataclass(frozen=True)
class JudgedSteps(Recipe, TeacherSettings):
    """Fields as in conf/collect/safe.yaml, which cites the source of each value."""

    method: ClassVar[type] = Safe

    verdicts: Mapping[str, str | None]
    teacher: Literal["rules", "model"]
    labels: Labels
    balance: Literal["equal", "all"]
    correct: Share
    hard_cases: Natural
    noise: Natural

    @property
    def uses_teacher(self) -> bool:
        return self.teacher == "model"

    @property
    def uses_noise(self) -> bool:
        return self.noise > 0

    @property
    def no_runs(self) -> str:
        if not self.uses_teacher:
            return "uses no runs: only a teacher finds hard cases. Set collect.teacher=model"
        return "" if self.hard_cases else "with collect.hard_cases=0 uses no runs. Remove --from"

    def collect(self, sources: Sequence[Source], call_teacher: CallTeacher) -> Iterator[Made]:
        """Yield examples by question in the order of the sources, then hard cases."""
        questions = list(self._questions([source for source in sources if source.run is None]))
        if not self.uses_teacher:
            yield from self._balance(self._by_rules(questions))
            return
        wrong = [each for source in sources if source.run is not None for each in self._wrong(source)]
        programs = list[tuple[str, Any]]()
        for number, each in enumerate(questions):
            program = Teacher(each.method, self).teach(each.question, self._chance(each.question, "teach"))
            programs.append((f"question {number}", program))
        for number, (each, answer, attempts) in enumerate(wrong):
            found = Teacher(each.method, self).hard_case(each.question, answer, attempts)
            programs.append((f"hard case {number}", found))
        results = call_teacher(programs)
        yield from self._balance(self._by_teacher(questions, results))
        yield from self._hard([each for each, _, _ in wrong], results)

    def _questions(self, sources: Sequence[Source]) -> Iterator[Case]:
        for source in sources:
            for questions, flag in ((source.questions, ""), (source.noise, FLAGGED)):
                for question in questions:
                    made_by = ("teacher" if self.uses_teacher else "rules") + flag
                    yield Case(source.dataset, self._method(source), question, made_by)

    def _method(self, source: Source) -> Safe:
        assert isinstance(source.method, Safe)
        return replace(source.method, labels=self.labels)

    def _by_rules(self, questions: Sequence[Case]) -> Iterator[Case | Dropped]:
        planned: list[tuple[Case, Plan]] = []
        for each in questions:
            try:
                shown = each.method.sample_passages(each.question)
                planned.append((each, plan(each.question, shown, self._chance(each.question, "plan"))))
            except NoPlan as why:  # noqa: PERF203
                yield each.drop(str(why), "question")
        others = _others(made for _, made in planned)
        for each, made in planned:
            question, shown = each.question, each.method.sample_passages(each.question)
            solution = Solution(made, shown, question.support, others, self._chance(question, "steps"))
            for step in solution.correct_steps():
                yield replace(each, label=CORRECT, step=step)
            for error in errors(self.labels):
                if wrong := solution.corrupt(error, self._chance(question, error)):
                    yield replace(each, label=error, step=wrong)
                else:
                    yield each.drop(f"the solution has no step for {error}", error)

    def _by_teacher(self, questions: Sequence[Case], results: Mapping[str, Any]) -> Iterator[Case | Dropped]:
        for number, each in enumerate(questions):
            result = results[f"question {number}"]
            if isinstance(result, NotTaught):
                yield each.drop(str(result), "question")
                continue
            for label, step in result:
                if isinstance(step, str):
                    yield each.drop(step, label)
                else:
                    yield replace(each, label=label, step=step)

    def _balance(self, made: Iterable[Case | Dropped]) -> Iterator[Made]:
        """Yield examples of a balanced sample; of flagged questions `noise` of them."""
        cases: list[Case] = []
        for one in made:
            if isinstance(one, Dropped):
                yield one
            elif _longest(one) > one.method.max_feedback_characters:
                yield one.drop("longer than method.max_feedback_characters")
            else:
                cases.append(one)
        sample = self._sample([case for case in cases if not case.made_by.endswith(FLAGGED)])
        flagged = self._sample([case for case in cases if case.made_by.endswith(FLAGGED)])
        sample |= set(sorted(flagged, key=self._order)[: self.noise])
        for case in cases:
            yield case.example() if case.id in sample else case.drop("dropped to balance the labels")

    def _wrong(self, source: Source) -> Iterator[tuple[Case, str, Sequence[Json]]]:
        """Yield the run's wrong answers, with the attempts in their notes."""
        run, method = source.run, self._method(source)
        assert run is not None
        profile = Metrics.read(run).profile
        for traced in read_trace(run):
            prediction, question = traced.prediction, traced.question
            attempts, answer = prediction.notes.get("attempts"), prediction.scored_answer or ""
            if prediction.error is None and attempts and score(answer, question.answers, profile)["em"] < 1:
                yield Case(source.dataset, method, question, f"{HARD} of {run.name}"), answer, attempts

    def _hard(self, wrong: Sequence[Case], results: Mapping[str, Any]) -> Iterator[Made]:
        """Yield up to `hard_cases` examples of the first error that the evaluator missed (§3.3)."""
        cases: list[Case] = []
        for number, each in enumerate(wrong):
            result = results[f"hard case {number}"]
            if isinstance(result, NotTaught):
                yield each.drop(str(result), HARD)
            else:
                cases.append(replace(each, label=result[0], step=result[1]))
        sample = set(sorted((case.id for case in cases), key=self._order)[: self.hard_cases])
        for case in cases:
            yield case.example() if case.id in sample else case.drop("more than collect.hard_cases")

    def _order(self, name: str) -> str:
        return text_digest(f"{self.seed} {name}")

    def _sample(self, cases: Sequence[Case]) -> set[str]:
        """Return the ids of a balanced sample: each error as often as the rarest, right steps in proportion."""
        if self.balance == "all":
            return {case.id for case in cases}
        by_label: dict[str, list[str]] = defaultdict(list)
        for case in sorted(cases, key=lambda case: self._order(case.id)):
            by_label[case.label].append(case.id)
        right = by_label.pop(CORRECT, [])
        least = min(map(len, by_label.values()), default=0)
        wrong = [id_ for ids in by_label.values() for id_ in ids[:least]]
        share = round(len(wrong) * self.correct / (1 - self.correct)) if self.correct < 1 else len(right)
        return {*wrong, *right[:share]}

    def _chance(self, question: Question, what: str) -> random.Random:
        return random.Random(f"{self.seed}/{question.id}/{what}")  # noqa: S311 - a sample, not a secret


def _others(plans: Iterable[Plan]) -> dict[str, list[str]]:
    """Return the values of all facts by what is wanted of a subject, each once."""
    values: dict[str, dict[str, None]] = defaultdict(dict)
    for fact in (fact for each in plans for fact in each.facts if fact.subject):
        values[fact.wanted.removesuffix(f" of {fact.subject}")][fact.value] = None
    return {kind: list(found) for kind, found in values.items()}


def _longest(case: Case) -> int:
    assert case.step is not None
    return max(len(case.step.verdict.diagnosis), len(case.step.verdict.guidance))
