"""SAFE's evaluator learns to judge one step (Kwon et al., §3.3): right steps, and one error of each type a question.

By rules from gold decompositions, or by a teacher; with cases that a trained evaluator got wrong, and with questions
that verification flagged.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from kgqa.artifacts.examples import (
    CallTeacher,
    Dropped,
    ExampleOrigin,
    ExampleSource,
    Made,
    Recipe,
    TrainingExample,
)
from kgqa.config.overrides import format_override, override_key
from kgqa.extras.training.collect.safe_rules import (
    JudgedStep,
    Labeled,
    LogicalPlan,
    NotTaught,
    Solution,
    plan,
)
from kgqa.extras.training.collect.safe_teacher import (
    TeacherSettings,
    load_wrong_answers,
    read_labeled,
)
from kgqa.methods.safe import Safe, read_step, step_line
from kgqa.methods.steps.safe_verdict import CORRECT, Labels, errors
from kgqa.prompting import to_json
from kgqa.types import Question
from kgqa.util.digests import text_digest
from kgqa.util.settings import Setting
from kgqa.util.validators import Natural, Share

HARD = "hard case"
FLAGGED = ", of a flagged question"
SELECTING = ("limit", "sample", "ids", "dataset.verified")  # keys that select questions


@dataclass(frozen=True)
class Case:
    """A step to judge that can become an example.

    made_by: who labels it. words: the overrides of a run of its question. run: the run with its wrong answer.
    """

    dataset: str
    method: Safe
    question: Question
    made_by: str
    words: tuple[str, ...] = ()
    run: Path | None = None
    label: str = ""
    step: JudgedStep | None = None

    @property
    def id(self) -> str:
        assert self.step is not None
        maker = f"{self.made_by}/" if self.made_by.startswith(HARD) else ""
        return f"{self.dataset}/{maker}{self.question.id}/{self.label}/{self.step.number}"

    def example(self) -> TrainingExample:
        step, method = self.step, self.method
        assert step is not None
        values = method.prompt_values(self.question, method.sample_passages(self.question))
        lines = [step_line(number, text) for number, text in enumerate(step.accepted, start=1)]
        return TrainingExample(
            id=self.id,
            question=self.question.id,
            role="feedback",
            prompt=method.judge_prompt(
                {**values, "steps": lines}, step.number, read_step(step.text)
            ),
            target=to_json(step.verdict._asdict()),
            label=self.label,
            origin=ExampleOrigin(self.dataset, step.number, self.made_by),
        )

    def drop(self, why: str, what: str = "") -> Dropped:
        number = self.step.number if self.step else 0
        return Dropped(
            self.question.id,
            what or self.label,
            why,
            ExampleOrigin(self.dataset, number, self.made_by),
        )


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
        Setting(
            'Share of error types: equal, each as often as the rarest ("balanced") | all.',
            paper="Fig. 7",
        ),
    ] = "equal"
    correct: Annotated[
        Share, Setting("Share of right steps, with balance=equal.", paper="§3.3: 3.9K of 11.5K")
    ] = 0.34
    hard_cases: Annotated[
        Natural,
        Setting(
            'Maximum number of errors that a trained evaluator missed in the runs of --from. 0: none ("Synthetic '
            'Only").',
            paper="§3.3, Table 12",
        ),
    ] = 848
    noise: Annotated[
        Natural,
        Setting(
            "Examples of questions that verification marked as noise: 5300. 0: none.",
            paper="Table 4",
        ),
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

    def collect(
        self, sources: Sequence[ExampleSource], call_teacher: CallTeacher
    ) -> Iterator[Made]:
        """Yield examples by question in the order of the sources, then hard cases."""
        questions = {
            f"question {number}": case for number, case in enumerate(self._questions(sources))
        }
        hard = {
            f"hard case {number}": case for number, case in enumerate(self._hard_cases(sources))
        }
        if self.uses_teacher:
            labeled = self._label_by_teacher({**questions, **hard}, call_teacher)
        else:
            labeled = self._label_by_rules(questions)
        yield from _choose(
            questions, labeled, "question", self._balance, "dropped to balance the labels"
        )
        yield from _choose(hard, labeled, HARD, self._sample_hard, "more than collect.hard_cases")

    def _questions(self, sources: Sequence[ExampleSource]) -> Iterator[Case]:
        """Yield the questions of the datasets and then, of each, those that verification flagged."""
        maker = "teacher" if self.uses_teacher else "rules"
        for source in sources:
            if source.run is None:
                for question in source.questions:
                    yield Case(
                        source.dataset, self._method(source), question, maker, words=source.words
                    )
                words = _select(source.words, source.noise)
                for question in source.noise:
                    yield Case(
                        source.dataset, self._method(source), question, maker + FLAGGED, words=words
                    )

    def _hard_cases(self, sources: Sequence[ExampleSource]) -> Iterator[Case]:
        """Yield the questions that runs answered wrong."""
        for source in sources:
            if source.run is not None:
                wrong = load_wrong_answers(str(source.run)) or {}
                questions = [question for question in source.questions if question.id in wrong]
                words, maker = _select(source.words, questions), f"{HARD} of {source.run.name}"
                for question in questions:
                    yield Case(
                        source.dataset,
                        self._method(source),
                        question,
                        maker,
                        words=words,
                        run=source.run,
                    )

    def _label_by_teacher(
        self, cases: Mapping[str, Case], call_teacher: CallTeacher
    ) -> dict[str, list[Labeled] | NotTaught]:
        """Return the labeled steps of each question from runs of method=safe_teacher, one for each source."""
        settings = {each.name: getattr(self, each.name) for each in fields(TeacherSettings)}
        settings |= {"labels": self.labels, "seed": self.seed}
        labeled = dict[str, list[Labeled] | NotTaught]()
        for words, run in dict.fromkeys((case.words, case.run) for case in cases.values()):
            values = {**settings, "answers_of": run}
            settings_of_method = [
                format_override(f"method.{name}", value) for name, value in values.items()
            ]
            notes = call_teacher([*words, "method=safe_teacher", *settings_of_method])
            for key, case in cases.items():
                if (case.words, case.run) == (words, run):
                    labeled[key] = read_labeled(
                        notes[case.question.id], f"the teacher's notes on {case.question.id}"
                    )
        return labeled

    def _method(self, source: ExampleSource) -> Safe:
        assert isinstance(source.method, Safe)
        return replace(source.method, labels=self.labels)

    def _label_by_rules(
        self, questions: Mapping[str, Case]
    ) -> dict[str, list[Labeled] | NotTaught]:
        """Return the labeled steps of each question, as a teacher does."""
        plans, labeled = dict[str, LogicalPlan](), dict[str, list[Labeled] | NotTaught]()
        for key, case in questions.items():
            passages, chance = (
                case.method.sample_passages(case.question),
                self._chance(case.question, "plan"),
            )
            try:
                plans[key] = plan(case.question, passages, chance)
            except NotTaught as why:
                labeled[key] = why
        others = _others(plans.values())
        for key, plan_of_rules in plans.items():
            question, passages = (
                questions[key].question,
                questions[key].method.sample_passages(questions[key].question),
            )
            solution = Solution(
                plan_of_rules, passages, question.support, others, self._chance(question, "steps")
            )
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
        share = (
            round(len(wrong) * self.correct / (1 - self.correct))
            if self.correct < 1
            else len(right)
        )
        return {*wrong, *right[:share]}

    def _chance(self, question: Question, what: str) -> random.Random:
        return random.Random(f"{self.seed}/{question.id}/{what}")  # noqa: S311 - a sample, not a secret


def _select(words: Iterable[str], questions: Sequence[Question]) -> tuple[str, ...]:
    """Return overrides with these questions of the same dataset only."""
    others = (word for word in words if override_key(word) not in SELECTING)
    return (*others, format_override("ids", [question.id for question in questions]))


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
            elif (
                max(len(step.verdict.diagnosis), len(step.verdict.guidance))
                > case.method.max_feedback_characters
            ):
                yield replace(case, label=label, step=step).drop(
                    "longer than method.max_feedback_characters"
                )
            else:
                usable.append(replace(case, label=label, step=step))
    some = sample(usable)
    for case in usable:
        yield case.example() if case.id in some else case.drop(why)


def _others(plans: Iterable[LogicalPlan]) -> dict[str, list[str]]:
    """Return the values of all facts by what is wanted of a subject, each once."""
    values: dict[str, dict[str, None]] = defaultdict(dict)
    for fact in (fact for each in plans for fact in each.facts if fact.subject):
        values[fact.wanted.removesuffix(f" of {fact.subject}")][fact.value] = None
    return {kind: list(examples) for kind, examples in values.items()}
