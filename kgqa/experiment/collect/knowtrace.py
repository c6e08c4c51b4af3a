"""KnowTrace learns from its own right answers (Li et al., §3.3, Algorithm 2): lessons of finished runs.

Nothing is asked again. Any method whose answers have lessons can be learnt from so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from kgqa.artefacts.metrics import Metrics
from kgqa.artefacts.predictions import Prediction, run_predictions
from kgqa.artefacts.trace import TracedQuestion, read_trace
from kgqa.constraints import Share
from kgqa.errors import ConfigError, DataError
from kgqa.examples import Dropped, Example, Made, Origin, Source
from kgqa.experiment.config import parts
from kgqa.experiment.config.files import load_yaml
from kgqa.scoring.intervals import pooled_interval
from kgqa.scoring.metrics import score
from kgqa.types import Json, Lesson, Message, Prompt, Question

RIGHT, FA = "right answers", "FA, percent of tokens filtered"  # figures
LOW, HIGH = ", low end of its interval", ", high end"
UNTAUGHT = "no reply is a lesson: forced, not readable, or of a method that has none"


@runtime_checkable
class Backtracing(Protocol):
    """A method that can say what it would have asked with nothing in its graph but what supports the answer."""

    def supported(self, question: Question, notes: Mapping[str, Json]) -> Sequence[tuple[Prompt, Prompt]]:
        """By exploration, from an answer's notes: the prompt as it was asked, and the other one."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A reply of a run, and what it is an example of an answer to."""

    prompt: Prompt
    reply: str


Replies = Callable[[TracedQuestion], Sequence[Asked]]


@dataclass(frozen=True)
class RunLessons:
    """Fields as in conf/collect/knowtrace.yaml, which cites the source of each value."""

    sources: Mapping[str, str]
    filter: Literal["backtracing", "none"]
    memory: Literal["told", "support"]
    role: str | None
    right: Literal["em", "f1"]
    least: Share
    held_out: Share
    seed: int

    def collect(self, sources: Sequence[Source], advance: Callable[[], None]) -> Iterator[Made]:
        """By run, its questions in the data file's order.

        Raises:
            DataError: a run's files do not fit together.
        """
        for source in sources:
            run = _run(source)
            profile = Metrics.read(run).profile
            replies = as_told if self.memory == "told" else Supported.of(run)
            by_question: dict[str, list[Made]] = {}
            for traced in read_trace(run):
                by_question[traced.question.id] = list(self._made(traced, source, profile, replies))
                advance()
            for question in source.questions:
                yield from by_question[question.id]

    def figures(self, sources: Sequence[Source]) -> Mapping[str, int | float]:
        """Right answers; FA (Figure 4): tokens that backtracing filters, percent of all written for right answers, with
        its 95 % bootstrap interval over these."""
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
        low, high = pooled_interval(parts, seed=self.seed)
        return figures | {FA: 100 * useless / written, f"{FA}{LOW}": 100 * low, f"{FA}{HIGH}": 100 * high}

    def _is_right(self, question: Question, prediction: Prediction, profile: str) -> bool:
        reached = score(prediction.scored_answer, question.answers, profile)
        return reached["em"] == 1 if self.right == "em" else reached["f1"] >= self.least

    def _made(self, traced: TracedQuestion, source: Source, profile: str, replies: Replies) -> Iterator[Made]:
        prediction, question = traced.prediction, traced.question
        name = _run(source).name
        why = "the question failed" if prediction.error else ""
        if not why and not self._is_right(question, prediction, profile):
            why = "the answer is wrong"
        if not why and not prediction.lessons:
            why = UNTAUGHT
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
            yield self._learnt(lesson, heard[lesson.call], question, origin)

    def _learnt(self, lesson: Lesson, asked: Asked, question: Question, origin: Origin) -> Made:
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


def as_told(traced: TracedQuestion) -> Sequence[Asked]:
    """Every answered generation, in the order of the trace."""
    answered = (call for call in traced.calls if call.kind == "generate" and call.error is None)
    return [Asked(_prompt(call.request["prompt"]), call.text or "") for call in answered]


@dataclass(frozen=True)
class Supported:
    """The same, where an exploration is told of the graph only what supports the answer."""

    run: Path
    method: Backtracing

    @classmethod
    def of(cls, run: Path) -> Supported:
        """Raises ConfigError: the run's method cannot say what it would have asked."""
        method = parts.method(load_yaml(run / "config.yaml")["method"])
        if not isinstance(method, Backtracing):
            raise ConfigError(
                f"collect.memory=support: {run}: its method has no `supported`, as knowtrace has; give "
                "collect.memory=told"
            )
        return cls(run, method)

    def __call__(self, traced: TracedQuestion) -> Sequence[Asked]:
        """Raises DataError: the method would ask otherwise now than the run asked."""
        heard, id_ = as_told(traced), traced.question.id
        try:
            support = dict(self.method.supported(traced.question, traced.notes))
        except (KeyError, TypeError) as error:
            raise DataError(f"{self.run}: question {id_}: notes without its graph ({error!r}); run it again") from error
        explored = {prompt.name for prompt in support}
        learnt = [heard[lesson.call].prompt for lesson in traced.prediction.lessons if lesson.call < len(heard)]
        if any(prompt.name in explored and prompt not in support for prompt in learnt):
            raise DataError(
                f"{self.run}: question {id_} was asked otherwise than its method asks now: a template or an example "
                "has changed, its passages were pinned, or method.memory=texts; give collect.memory=told"
            )
        return [Asked(support.get(asked.prompt, asked.prompt), asked.reply) for asked in heard]


def _run(source: Source) -> Path:
    assert source.run is not None
    return source.run


def _prompt(traced: Mapping[str, Json]) -> Prompt:
    """As it was asked; traces of 0.1 do not say its form, and all that asked then were chats."""
    messages = tuple(Message(role, content) for role, content in traced["messages"])
    return Prompt(traced["template"], messages, traced["prefill"], traced.get("form", "chat"))
