"""Examples from a method's own right answers, without model calls (KnowTrace, Li et al., §3.3, Algorithm 2).

This works for any method with `lessons` in its answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from kgqa.artifacts.examples import Dropped, Example, Made, Origin, Source
from kgqa.artifacts.metrics import Metrics
from kgqa.artifacts.predictions import Prediction, run_predictions
from kgqa.artifacts.trace import TracedQuestion, read_trace
from kgqa.config import factories as parts
from kgqa.config.files import load_yaml
from kgqa.errors import ConfigError, DataError
from kgqa.scoring.intervals import pool_interval
from kgqa.scoring.metrics import score
from kgqa.types import Json, Lesson, Message, Prompt, Question
from kgqa.util.validators import Share

RIGHT, FA = "right answers", "FA, percent of tokens filtered"  # figures
LOW, HIGH = ", low end of its interval", ", high end"
NO_LESSONS = "no reply is a lesson: forced, not readable, or of a method that has none"


@runtime_checkable
class Backtracing(Protocol):
    """A method that can render its prompts with only the supporting triples in its graph."""

    def support_prompts(self, question: Question, notes: Mapping[str, Json]) -> Sequence[tuple[Prompt, Prompt]]:
        """Return for each exploration, from an answer's notes, the prompt of the run and the other prompt."""


@dataclass(frozen=True, slots=True)
class RunReply:
    """A reply of a run with its prompt."""

    prompt: Prompt
    reply: str


Replies = Callable[[TracedQuestion], Sequence[RunReply]]


@dataclass(frozen=True)
class RunLessons:
    """Fields as in conf/collect/knowtrace.yaml, which cites the source of each value."""

    sources: Mapping[str, str]
    filter: Literal["backtracing", "none"]
    memory: Literal["full", "support"]
    role: str | None
    right: Literal["em", "f1"]
    least: Share
    held_out: Share
    seed: int

    def collect(self, sources: Sequence[Source], advance: Callable[[], None]) -> Iterator[Made]:
        """Yield examples by run, with its questions in the order of the data file.

        Raises:
            DataError: a run's files do not fit together.
        """
        for source in sources:
            run = _run(source)
            profile = Metrics.read(run).profile
            replies = run_replies if self.memory == "full" else SupportReplies.of(run)
            by_question: dict[str, list[Made]] = {}
            for traced in read_trace(run):
                by_question[traced.question.id] = list(self._examples(traced, source, profile, replies))
                advance()
            for question in source.questions:
                yield from by_question[question.id]

    def figures(self, sources: Sequence[Source]) -> Mapping[str, int | float]:
        """Return the number of right answers, and FA (Figure 4) with its 95 % bootstrap interval.

        FA is the percentage of tokens that backtracing filters, of all tokens of right answers.
        """
        right: list[Prediction] = []
        for source in sources:
            run = _run(source)
            profile, questions = Metrics.read(run).profile, {question.id: question for question in source.questions}
            right += [p for p in run_predictions(run) if self._is_right(questions[p.question_id], p, profile)]
        written, useless = (sum(p.figures.get(f"{key}_tokens", 0) for p in right) for key in ("written", "filtered"))
        figures: dict[str, int | float] = {RIGHT: len(right)}
        if not written:
            return figures
        parts = [(p.figures.get("filtered_tokens", 0), p.figures.get("written_tokens", 0)) for p in right]
        low, high = pool_interval(parts, seed=self.seed)
        return figures | {FA: 100 * useless / written, f"{FA}{LOW}": 100 * low, f"{FA}{HIGH}": 100 * high}

    def _is_right(self, question: Question, prediction: Prediction, profile: str) -> bool:
        reached = score(prediction.scored_answer, question.answers, profile)
        return reached["em"] == 1 if self.right == "em" else reached["f1"] >= self.least

    def _examples(self, traced: TracedQuestion, source: Source, profile: str, replies: Replies) -> Iterator[Made]:
        prediction, question = traced.prediction, traced.question
        name = _run(source).name
        why = "the question failed" if prediction.error else ""
        if not why and not self._is_right(question, prediction, profile):
            why = "the answer is wrong"
        if not why and not prediction.lessons:
            why = NO_LESSONS
        if why:
            yield Dropped(question.id, "question", why, Origin(source.dataset, 0, name))
            return
        heard = replies(traced)
        iteration = 0
        for lesson in prediction.lessons:
            if lesson.call >= len(heard):
                raise DataError(
                    f"{source.run}: question {question.id} has no reply {lesson.call}; run its command again"
                )
            iteration += lesson.role == prediction.lessons[0].role
            if self.role not in (None, lesson.role):
                continue
            origin = Origin(source.dataset, iteration, name)
            yield self._example(lesson, heard[lesson.call], question, origin)

    def _example(self, lesson: Lesson, asked: RunReply, question: Question, origin: Origin) -> Made:
        whole = asked.reply.strip()
        target = whole if self.filter == "none" else lesson.kept
        if not target:
            why = "backtracing keeps nothing of it" if whole else "nothing was written"
            return Dropped(question.id, f"{lesson.role}, reply {lesson.call}", why, origin)
        return Example(
            id=f"{origin.dataset}/{origin.made_by}/{question.id}/{lesson.call}",
            question=question.id,
            role=lesson.role,
            prompt=asked.prompt,
            target=target,
            label=lesson.role if target == whole else f"{lesson.role}, in part",
            origin=origin,
        )


def run_replies(traced: TracedQuestion) -> Sequence[RunReply]:
    """Return all successful generations, in the order of the trace."""
    answered = (call for call in traced.calls if call.kind == "generate" and call.error is None)
    return [RunReply(_prompt(call.request["prompt"]), call.text or "") for call in answered]


@dataclass(frozen=True)
class SupportReplies:
    """Replies of a run, with only the supporting triples in the prompts of explorations."""

    run: Path
    method: Backtracing

    @classmethod
    def of(cls, run: Path) -> SupportReplies:
        """Load the method of a run. Raises ConfigError: it has no `support_prompts`."""
        method = parts.method(load_yaml(run / "config.yaml")["method"])
        if not isinstance(method, Backtracing):
            raise ConfigError(
                f"collect.memory=support: {run}: its method has no `support_prompts`, as knowtrace has; give "
                "collect.memory=full"
            )
        return cls(run, method)

    def __call__(self, traced: TracedQuestion) -> Sequence[RunReply]:
        """Return the replies. Raises DataError: the method's prompts have changed since the run."""
        heard, id_ = run_replies(traced), traced.question.id
        try:
            support = dict(self.method.support_prompts(traced.question, traced.notes))
        except (KeyError, TypeError) as error:
            raise DataError(f"{self.run}: question {id_}: notes without its graph ({error!r}); run it again") from error
        explored = {prompt.name for prompt in support}
        learnt = [heard[lesson.call].prompt for lesson in traced.prediction.lessons if lesson.call < len(heard)]
        if any(prompt.name in explored and prompt not in support for prompt in learnt):
            raise DataError(
                f"{self.run}: question {id_} was asked otherwise than its method asks now: a template or an example "
                "has changed, its passages were pinned, or method.memory=texts; give collect.memory=full"
            )
        return [RunReply(support.get(asked.prompt, asked.prompt), asked.reply) for asked in heard]


def _run(source: Source) -> Path:
    assert source.run is not None
    return source.run


def _prompt(traced: Mapping[str, Json]) -> Prompt:
    """Return the prompt of a call in a trace."""
    messages = tuple(Message(role, content) for role, content in traced["messages"])
    return Prompt(traced["template"], messages, traced["prefill"], traced["form"])
