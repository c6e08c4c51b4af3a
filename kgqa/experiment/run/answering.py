"""The questions of a run, answered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kgqa.calls import Neighbours, Search
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.runner import Runner
from kgqa.runtime.costs import Ledger
from kgqa.runtime.display import Display
from kgqa.runtime.folder import RunFolder
from kgqa.runtime.scheduler import Record
from kgqa.types import Answer, Json, Question

Outcomes = Mapping[str, Answer | Exception]  # by question, as they came


@dataclass(frozen=True)
class Answers:
    """What became of every question, and what that took."""

    outcomes: Outcomes
    ledger: Ledger
    throughput: dict[str, Json]

    def first_errors(self, count: int = 3) -> tuple[str, ...]:
        failed = [(key, error) for key, error in self.outcomes.items() if isinstance(error, Exception)]
        return tuple(f"{key}: {type(error).__name__}: {error}" for key, error in failed[:count])


def answer(experiment: Experiment, runner: Runner, folder: RunFolder, display: Display) -> Answers:
    """Run the method on every question; each is kept in the folder when it is finished."""
    questions = {question.id: question for question in experiment.questions}
    outcomes: dict[str, Answer | Exception] = {}
    programs = ((key, experiment.method.answer(question)) for key, question in questions.items())
    estimated = experiment.asks_models and runner.engines.estimates_tokens("reader")
    with display.stage("questions", len(questions), runner.ledger) as stage:
        for ended in runner.run(programs, stage.recorded):
            question, outcome = questions[ended.key], ended.result
            if isinstance(outcome, Answer):
                if estimated:
                    outcome = replace(outcome, context_tokens=None)  # it serves for cutting, not for reporting
                outcome = with_evidence_titles(outcome, question, ended.records)
            outcomes[ended.key] = outcome
            folder.record(question, outcome, ended.records)
            stage.finished(failed=isinstance(outcome, Exception))
    return Answers(outcomes, runner.ledger, runner.throughput())


def with_evidence_titles(answer: Answer, question: Question, records: Iterable[Record]) -> Answer:
    """The answer with the titles of its evidence, which are those of the passages the question saw."""
    titles = {passage.id: passage.title for passage in (*question.passages, *question.pinned)}
    for record in records:
        if isinstance(record.call, Search | Neighbours) and not isinstance(record.reply, Exception):
            titles |= {passage.id: passage.title for passage in record.reply}
    return replace(answer, evidence_titles=tuple(titles.get(passage, "") for passage in answer.evidence))
