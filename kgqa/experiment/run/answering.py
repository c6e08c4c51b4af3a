"""The questions of a run, answered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from kgqa.artifacts.metrics import Throughput
from kgqa.artifacts.predictions import Prediction
from kgqa.calls import Neighbours, Program, Search
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.runner import Runner
from kgqa.runtime.costs import Ledger, model_seconds
from kgqa.runtime.display import Display
from kgqa.runtime.scheduler import CallRecord
from kgqa.runtime.work_log import log_event
from kgqa.types import Answer, Question


@dataclass(frozen=True)
class Answers:
    """The predictions of all questions, with their cost."""

    predictions: Mapping[str, Prediction]  # by question, as they came; without notes
    ledger: Ledger
    throughput: Throughput
    model_seconds: Sequence[float]  # of each question, cached calls with the time they once took
    chains: Mapping[str, tuple[int, ...]]  # by question, of a method that notes chains: the triples of each
    errors: Sequence[str]  # of the questions that failed, each with its question


class Keeper(Protocol):
    """A receiver of finished questions, such as a run's folder."""

    def record(self, question: Question, prediction: Prediction, records: Iterable[CallRecord]) -> None: ...


def answer(experiment: Experiment, runner: Runner, keeper: Keeper, display: Display) -> Answers:
    """Run the method on every question."""
    questions = {question.id: question for question in experiment.questions}
    programs: Iterator[tuple[str, Program[Answer]]] = (
        (question.id, experiment.method.answer(question)) for question in experiment.questions
    )
    predictions = dict[str, Prediction]()
    seconds, chains, errors = [], dict[str, tuple[int, ...]](), list[str]()
    estimated = experiment.asks_models and runner.engines.estimates_tokens("reader")
    with display.stage("questions", len(questions), runner.ledger) as stage:
        for ended in runner.run(programs, stage.record):
            question, outcome = questions[ended.key], ended.result
            if isinstance(outcome, Answer):
                if estimated:
                    outcome = without_tokens(outcome)
                outcome = with_evidence_titles(outcome, question, ended.records)
            prediction = Prediction.of(question, outcome)
            if prediction.error:
                cause = prediction.error.partition(":")[0]  # of many that fail alike the log holds some
                errors.append(f"{ended.key}: {prediction.error}")
                log_event("question failed", errors[-1], cause=cause)
            if "chains" in prediction.notes:
                chains[ended.key] = tuple(len(chain["triples"]) for chain in prediction.notes["chains"])
            predictions[ended.key] = replace(prediction, notes={})  # the trace holds the notes
            seconds.append(model_seconds(ended.records))
            keeper.record(question, prediction, ended.records)
            stage.finish(failed=isinstance(outcome, Exception))
    return Answers(predictions, runner.ledger, runner.throughput(), seconds, chains, errors)


def without_tokens(answer: Answer) -> Answer:
    """Remove estimates of tokens, which serve for cutting, not for reporting."""
    figures = {name: value for name, value in answer.figures.items() if not name.endswith("_tokens")}
    return replace(answer, context_tokens=None, figures=figures)


def with_evidence_titles(answer: Answer, question: Question, records: Iterable[CallRecord]) -> Answer:
    """Return the answer with the titles of its evidence, which are those of the passages the question saw."""
    titles = {passage.id: passage.title for passage in (*question.passages, *question.pinned)}
    for record in records:
        if isinstance(record.call, Search | Neighbours) and not isinstance(record.reply, Exception):
            titles |= {passage.id: passage.title for passage in record.reply}
    return replace(answer, evidence_titles=tuple(titles.get(passage, "") for passage in answer.evidence))
