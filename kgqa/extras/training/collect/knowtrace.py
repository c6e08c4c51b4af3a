"""Examples from a method's own right answers, without model calls (KnowTrace, Li et al., §3.3, Algorithm 2).

This works for any method with `lessons` in its answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from kgqa.artifacts.examples import (
    CallTeacher,
    Dropped,
    ExampleOrigin,
    ExampleSource,
    Made,
    Recipe,
    TrainingExample,
)
from kgqa.artifacts.metrics import Metrics
from kgqa.artifacts.predictions import Prediction, run_predictions
from kgqa.artifacts.trace import TracedQuestion, read_trace
from kgqa.errors import DataError
from kgqa.scoring.intervals import pool_interval
from kgqa.scoring.metrics import score
from kgqa.types import Message, Prompt, Question
from kgqa.util.settings import Setting
from kgqa.util.validators import Share

RIGHT, FA = "right answers", "FA, percent of tokens filtered"  # figures
LOW, HIGH = ", low end of its interval", ", high end"
NO_LESSONS = "no reply is suitable: forced, not readable, or of another method"


@dataclass(frozen=True)
class RunLessons(Recipe):
    """Collect the replies of right answers in KnowTrace's runs."""

    filter: Annotated[
        Literal["backtracing", "none"],
        Setting(
            "Which replies become examples: backtracing | none, all replies of right answers (§4.4).",
            paper="§3.3",
        ),
    ] = "backtracing"
    role: Annotated[
        str | None,
        Setting(
            "Role that the examples are for: explorer | completer | null, both. Each role has its own adapter.",
            paper="§3.3",
        ),
    ] = None
    right: Annotated[
        Literal["em", "f1"],
        Setting(
            "When an answer is right: em, equal to a gold answer or alias | f1, at least `least` (not in the paper).",
            paper="Algorithm 2",
        ),
    ] = "em"
    least: Annotated[
        Share, Setting("Minimum F1 of a right answer, with right=f1.", ours="our choice")
    ] = 0.8

    def collect(
        self, sources: Sequence[ExampleSource], call_teacher: CallTeacher
    ) -> Iterator[Made]:
        """Yield examples by run, with its questions in the order of the data file.

        Raises DataError: a run's files do not fit together.
        """
        del call_teacher
        for source in sources:
            assert source.run is not None
            profile = Metrics.read(source.run).profile
            by_question = {
                traced.question.id: list(self.examples(traced, source, profile))
                for traced in read_trace(source.run)
            }
            for question in source.questions:
                yield from by_question[question.id]

    def figures(self, sources: Sequence[ExampleSource]) -> Mapping[str, int | float]:
        """Return the number of right answers, and FA (Figure 4) with its 95 % bootstrap interval.

        FA is the percentage of tokens that backtracing filters, of all tokens of right answers.
        """
        # filtered and written, of right answers
        tokens: list[tuple[float, float]] = []
        for source in sources:
            assert source.run is not None
            profile, questions = (
                Metrics.read(source.run).profile,
                {each.id: each for each in source.questions},
            )
            for prediction in run_predictions(source.run):
                if self.is_right(questions[prediction.question_id], prediction, profile):
                    figures = prediction.figures
                    tokens.append(
                        (figures.get("filtered_tokens", 0), figures.get("written_tokens", 0))
                    )
        total_tokens = sum(count for _, count in tokens)
        if not total_tokens:
            return {RIGHT: len(tokens)}
        low, high = pool_interval(tokens, seed=self.seed)
        share = sum(count for count, _ in tokens) / total_tokens
        return {RIGHT: len(tokens), FA: 100 * share, FA + LOW: 100 * low, FA + HIGH: 100 * high}

    def is_right(self, question: Question, prediction: Prediction, profile: str) -> bool:
        reached = score(prediction.scored_answer, question.answers, profile)
        return reached["em"] == 1 if self.right == "em" else reached["f1"] >= self.least

    def examples(
        self, traced: TracedQuestion, source: ExampleSource, profile: str
    ) -> Iterator[Made]:
        """Yield the examples of one question, or why there are none."""
        prediction, question = traced.prediction, traced.question
        assert source.run is not None
        why = ""
        if prediction.error:
            why = "the question failed"
        elif not self.is_right(question, prediction, profile):
            why = "the answer is wrong"
        elif not prediction.lessons:
            why = NO_LESSONS
        if why:
            yield Dropped(
                question.id, "question", why, ExampleOrigin(source.dataset, 0, source.run.name)
            )
            return
        replies = [call for call in traced.calls if call.kind == "generate" and call.error is None]
        iteration = 0
        for lesson in prediction.lessons:
            if lesson.call >= len(replies):
                raise DataError(
                    f"{source.run}: question {question.id} has no reply {lesson.call}. Run its command again"
                )
            iteration += lesson.role == prediction.lessons[0].role
            if self.role not in (None, lesson.role):
                continue
            origin = ExampleOrigin(source.dataset, iteration, source.run.name)
            reply = (replies[lesson.call].text or "").strip()
            target = reply if self.filter == "none" else lesson.kept
            if not target:
                why = "backtracing removes all of it" if reply else "the reply is empty"
                yield Dropped(question.id, f"{lesson.role}, reply {lesson.call}", why, origin)
                continue
            prompt = replies[lesson.call].request["prompt"]
            messages = tuple(Message(role, content) for role, content in prompt["messages"])
            yield TrainingExample(
                id=f"{source.dataset}/{source.run.name}/{question.id}/{lesson.call}",
                question=question.id,
                role=lesson.role,
                prompt=Prompt(prompt["template"], messages, prompt["prefill"], prompt["form"]),
                target=target,
                label=lesson.role if target == reply else f"{lesson.role}, in part",
                origin=origin,
            )
