"""SAFE's evaluator learns to judge one step (Kwon et al., §3.3): right steps, and one error of each type a question.

By rules from gold decompositions, or by a teacher; with cases that a trained evaluator got wrong, and with questions
that verification flagged.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

from kgqa.artifacts.examples import CallTeacher, Dropped, Example, Made, NotTaught, Origin, Recipe, Source
from kgqa.artifacts.metrics import Metrics
from kgqa.artifacts.trace import read_trace
from kgqa.calls import Program
from kgqa.extras.training.collect.safe_rules import JudgedStep, Labeled, Plan, Solution, plan
from kgqa.extras.training.collect.safe_teacher import Teacher, TeacherSettings
from kgqa.methods.safe import Safe, read_step, step_line
from kgqa.methods.steps.safe_verdict import CORRECT, Labels, errors
from kgqa.prompting import to_json
from kgqa.scoring.metrics import score
from kgqa.types import Json, Question
from kgqa.util.fs import text_digest
from kgqa.util.settings import Setting
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
    """Collect one step of a solution and its verdict, for SAFE's evaluator."""

    method: ClassVar[type] = Safe

    verdicts: Annotated[
        Mapping[str, str | None],
        Setting(
            "Runs with method=verify: only their valid questions are used. For one dataset, use dataset.verified=.",
            paper="§3.3",
        ),
    ] = field(default_factory=lambda: {"2wiki": None, "hotpotqa": None, "musique": None})
    teacher: Annotated[
        Literal["rules", "model"],
        Setting(
            "Who writes the examples: model, the role `teacher` (gpt-oss-120b) | rules, from gold decompositions, "
            "which HotpotQA lacks.",
            paper="§3.3",
        ),
    ] = "rules"
    labels: Annotated[
        Labels,
        Setting(
            "Error types: paper, the ten of Table 1 | released, also Premature Conclusion, which is then in the "
            "prompt too."
        ),
    ] = field(kw_only=True)
    balance: Annotated[
        Literal["equal", "all"],
        Setting('Share of error types: equal, each as often as the rarest ("balanced") | all.', paper="Fig. 7"),
    ] = "equal"
    correct: Annotated[Share, Setting("Share of right steps, with balance=equal.", paper="§3.3: 3.9K of 11.5K")] = 0.34
    hard_cases: Annotated[
        Natural,
        Setting(
            'Maximum number of errors that a trained evaluator missed in the runs of --from. 0: none ("Synthetic '
            'Only").',
            paper="§3.3, Table 12",
        ),
    ] = 848
    noise: Annotated[
        Natural, Setting("Examples of questions that verification marked as noise: 5300. 0: none.", paper="Table 4")
    ] = 0

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
        questions = {f"question {number}": case for number, case in enumerate(self._questions(sources))}
        wrong = {f"hard case {number}": found for number, found in enumerate(self._wrong_answers(sources))}
        hard = {key: case for key, (case, _, _) in wrong.items()}
        if self.uses_teacher:
            programs = list[tuple[str, Program[list[Labeled]]]]()
            for key, case in questions.items():
                chance = self._chance(case.question, "teach")
                programs.append((key, Teacher(case.method, self).teach(case.question, chance)))
            for key, (case, answer, attempts) in wrong.items():
                programs.append((key, Teacher(case.method, self).hard_case(case.question, answer, attempts)))
            labeled = call_teacher(programs)
        else:
            labeled = self._label_by_rules(questions)
        yield from _choose(questions, labeled, "question", self._balance, "dropped to balance the labels")
        yield from _choose(hard, labeled, HARD, self._sample_hard, "more than collect.hard_cases")

    def _questions(self, sources: Sequence[Source]) -> Iterator[Case]:
        """Yield the questions of the datasets and then, of each, those that verification flagged."""
        maker = "teacher" if self.uses_teacher else "rules"
        for source in sources:
            questions = () if source.run else source.questions
            made_by = [maker] * len(questions) + [maker + FLAGGED] * len(source.noise)
            for question, name in zip((*questions, *source.noise), made_by, strict=True):
                yield Case(source.dataset, self._method(source), question, name)

    def _wrong_answers(self, sources: Sequence[Source]) -> Iterator[tuple[Case, str, Sequence[Json]]]:
        """Yield the wrong answers of runs, with the attempts in their notes."""
        for source in sources:
            if source.run is None:
                continue
            method, profile = self._method(source), Metrics.read(source.run).profile
            for traced in read_trace(source.run):
                prediction, question = traced.prediction, traced.question
                attempts, answer = prediction.notes.get("attempts"), prediction.scored_answer or ""
                if prediction.error is None and attempts and score(answer, question.answers, profile)["em"] < 1:
                    yield Case(source.dataset, method, question, f"{HARD} of {source.run.name}"), answer, attempts

    def _method(self, source: Source) -> Safe:
        assert isinstance(source.method, Safe)
        return replace(source.method, labels=self.labels)

    def _label_by_rules(self, questions: Mapping[str, Case]) -> dict[str, list[Labeled] | NotTaught]:
        """Return the labeled steps of each question, as a teacher does."""
        plans, labeled = dict[str, Plan](), dict[str, list[Labeled] | NotTaught]()
        for key, case in questions.items():
            shown, chance = case.method.sample_passages(case.question), self._chance(case.question, "plan")
            try:
                plans[key] = plan(case.question, shown, chance)
            except NotTaught as why:
                labeled[key] = why
        others = _others(plans.values())
        for key, made in plans.items():
            question, shown = questions[key].question, questions[key].method.sample_passages(questions[key].question)
            solution = Solution(made, shown, question.support, others, self._chance(question, "steps"))
            chances = {error: self._chance(question, error) for error in errors(self.labels)}
            labeled[key] = solution.label_steps(chances)
        return labeled

    def _balance(self, cases: Sequence[Case]) -> set[str]:
        """Return the ids of a balanced sample; of flagged questions `noise` of them."""
        flagged = self._sample([case for case in cases if case.made_by.endswith(FLAGGED)])
        others = self._sample([case for case in cases if not case.made_by.endswith(FLAGGED)])
        return {*others, *sorted(flagged, key=self._order)[: self.noise]}

    def _sample_hard(self, cases: Sequence[Case]) -> set[str]:
        """Return the ids of up to `hard_cases` first errors that the evaluator missed (§3.3)."""
        return {*sorted((case.id for case in cases), key=self._order)[: self.hard_cases]}

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


def _choose(
    cases: Mapping[str, Case],
    labeled: Mapping[str, list[Labeled] | NotTaught],
    what: str,
    sample: Callable[[Sequence[Case]], set[str]],
    why: str,
) -> Iterator[Made]:
    """Yield an example for each labeled step in the sample, and the reason why the others give none."""
    usable = list[Case]()
    for key, case in cases.items():
        result = labeled[key]
        if isinstance(result, NotTaught):
            yield case.drop(str(result), what)
            continue
        for label, step in result:
            if isinstance(step, str):
                yield case.drop(step, label)
            elif max(len(step.verdict.diagnosis), len(step.verdict.guidance)) > case.method.max_feedback_characters:
                yield replace(case, label=label, step=step).drop("longer than method.max_feedback_characters")
            else:
                usable.append(replace(case, label=label, step=step))
    chosen = sample(usable)
    for case in usable:
        yield case.example() if case.id in chosen else case.drop(why)


def _others(plans: Iterable[Plan]) -> dict[str, list[str]]:
    """Return the values of all facts by what is wanted of a subject, each once."""
    values: dict[str, dict[str, None]] = defaultdict(dict)
    for fact in (fact for each in plans for fact in each.facts if fact.subject):
        values[fact.wanted.removesuffix(f" of {fact.subject}")][fact.value] = None
    return {kind: list(found) for kind, found in values.items()}
