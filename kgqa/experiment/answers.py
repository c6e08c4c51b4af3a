"""Answer the questions of a run, score the answers, and measure the run."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from kgqa.artifacts.metrics import UNDEFINED, Metrics, Retrieval, ScoreSummary, Throughput
from kgqa.artifacts.predictions import Prediction
from kgqa.artifacts.schema import extend
from kgqa.artifacts.trace import TracedQuestion
from kgqa.calls import Neighbours, Search
from kgqa.errors import KgqaError
from kgqa.experiment.experiment import Experiment
from kgqa.experiment.session import Runner
from kgqa.kg.graph import ReadChains, chain_statistics
from kgqa.protocols import Index
from kgqa.runtime.costs import Ledger, model_seconds
from kgqa.runtime.display import Display
from kgqa.runtime.folder import trace_question
from kgqa.runtime.scheduler import CallRecord
from kgqa.runtime.work_log import log_event
from kgqa.scoring.questions import METRICS, ScoredQuestion, score_questions
from kgqa.scoring.retrieval import RetrievedPassages, gold_pages, gold_passages, gold_ranks, summarise_retrieval
from kgqa.scoring.summary import summarise
from kgqa.types import Answer, Question
from kgqa.util.redaction import describe_error, format_frames

MAX_KINDS = 20  # of failures that are shown and logged with their traceback


@dataclass(frozen=True)
class Answers:
    """The predictions of all questions, with their cost. Dictionaries are by question."""

    predictions: Mapping[str, Prediction]  # without notes, which the trace holds
    ledger: Ledger
    throughput: Throughput
    model_seconds: Sequence[float]  # of each question, as if no reply had been cached
    chains: Mapping[str, tuple[int, ...]]  # the number of triples of each chain, if the method notes chains
    errors: Sequence[str]  # of the failed questions, with their ids


class Recorder(Protocol):
    """A receiver of finished questions, such as the folder of a run."""

    def record(self, question: Question, prediction: Prediction, records: Iterable[CallRecord]) -> None: ...


@dataclass
class Collector:
    """Collects finished questions in memory, in the order in which they finish."""

    traced: list[TracedQuestion] = field(default_factory=list)

    def record(self, question: Question, prediction: Prediction, records: Iterable[CallRecord]) -> None:
        self.traced.append(trace_question(question, prediction, records))


def answer_questions(experiment: Experiment, runner: Runner, recorder: Recorder, display: Display) -> Answers:
    """Run the method on every question."""
    questions = {question.id: question for question in experiment.questions}
    programs = ((question.id, experiment.method.answer(question)) for question in experiment.questions)
    predictions, chains = dict[str, Prediction](), dict[str, tuple[int, ...]]()
    seconds, errors, failures = list[float](), list[str](), FailureLog(display)
    # a hosted model with an unknown tokenizer
    estimated = experiment.asks_models and "estimated" in str(runner.engines("reader").identity().get("tokens"))
    with display.stage("questions", len(questions), runner.ledger) as stage:
        for ended in runner.run(programs, stage.record):
            question, outcome = questions[ended.key], ended.result
            if isinstance(outcome, Answer):
                outcome = without_tokens(outcome) if estimated else outcome
                outcome = replace(outcome, evidence_titles=_find_titles(outcome, question, ended.records))
            prediction = Prediction.of(question, outcome)
            if isinstance(outcome, Exception):
                errors.append(f"{ended.key}: {prediction.error}")
                failures.report(outcome, errors[-1])
            if "chains" in prediction.notes:
                chains[ended.key] = tuple(len(chain["triples"]) for chain in prediction.notes["chains"])
            predictions[ended.key] = replace(prediction, notes={})
            seconds.append(model_seconds(ended.records))
            recorder.record(question, prediction, ended.records)
            stage.finish(failed=isinstance(outcome, Exception))
    return Answers(predictions, runner.ledger, runner.throughput(), seconds, chains, errors)


@dataclass
class FailureLog:
    """Logs failed questions. The first failure of each kind is shown, too, and its traceback is logged."""

    display: Display
    kinds: set[str] = field(default_factory=set)

    def report(self, error: Exception, line: str) -> None:
        """Log a failure. Failures of one kind differ in numbers only."""
        kind = re.sub(r"\d+", "0", describe_error(error))
        is_new = kind not in self.kinds and len(self.kinds) < MAX_KINDS
        if not is_new:
            log_event("question failed", line, cause=type(error).__name__)
            return
        trace = "".join(traceback.format_exception(error))
        log_event("question failed", line, cause=type(error).__name__, traceback=trace)
        self.kinds.add(kind)
        self.display.line(f"failed: {line}", alarm=True)
        if not isinstance(error, KgqaError):
            for frame in format_frames(error):
                self.display.line(f"  {frame}", alarm=True)


def without_tokens(answer: Answer) -> Answer:
    """Remove token counts that are only estimates. They serve for cutting, not for reporting."""
    figures = {name: value for name, value in answer.figures.items() if not name.endswith("_tokens")}
    return replace(answer, context_tokens=None, figures=figures)


def _find_titles(answer: Answer, question: Question, records: Iterable[CallRecord]) -> tuple[str, ...]:
    """Return the titles of the evidence, which are those of the passages that the question saw."""
    titles = {passage.id: passage.title for passage in (*question.passages, *question.pinned)}
    for record in records:
        if isinstance(record.call, Search | Neighbours) and not isinstance(record.reply, Exception):
            titles |= {passage.id: passage.title for passage in record.reply}
    return tuple(titles.get(passage, "") for passage in answer.evidence)


def score_answers(experiment: Experiment, answers: Answers) -> list[ScoredQuestion]:
    """Score the questions, in the order of the data file."""
    return score_questions(experiment.questions, answers.predictions, experiment.profile)


def measure(experiment: Experiment, answers: Answers, scored: Sequence[ScoredQuestion], index: Index | None) -> Metrics:
    """Return what `metrics.json` contains of the answers."""
    ledger, seed = answers.ledger, experiment.settings.seed
    summary = summarise(scored, seed=seed)
    retrieval = seconds = None
    if (experiment.searches or "reranker" in experiment.method.uses) and summary.failed < len(scored):
        retrieval = _measure_retrieval(scored, ledger, index, seed)
    if experiment.asks_models:
        import numpy as np

        half, most = np.quantile(answers.model_seconds, (0.5, 0.95))
        seconds = {"p50": round(float(half), 3), "p95": round(float(most), 3)}
    chains = [
        ReadChains(row.question.support, row.prediction.evidence or (), answers.chains.get(row.id, ()))
        for row in scored
        if row.prediction.error is None
    ]
    return extend(
        Metrics,
        summary if experiment.has_answers else _without_answers(summary),
        cost=ledger.costs(len(scored)),
        throughput=answers.throughput,
        calls=dict(ledger.answered),
        cache_hits=dict(ledger.hits),
        question_seconds=seconds,
        call_seconds={kind: round(seconds, 6) for kind, seconds in sorted(ledger.seconds.items())},
        retrieval=retrieval,
        chains=chain_statistics(chains) if answers.chains else None,
    )


def _without_answers(summary: ScoreSummary) -> ScoreSummary:
    """Remove the scores of answers, for a run that only retrieves."""
    scores = {name: UNDEFINED if METRICS[name].of_answer else score for name, score in summary.scores.items()}
    bare = summary.replace(wording=None, found_and_right=None)
    return bare.replace(answerless=0, scores=scores, by_hops={}, by_type={}, profiles={})


def _measure_retrieval(scored: Sequence[ScoredQuestion], ledger: Ledger, index: Index | None, seed: int) -> Retrieval:
    """Measure the passages that each question retrieved: none if it failed."""
    retrieved = []
    for row in scored:
        evidence, titles = row.prediction.evidence or (), row.prediction.evidence_titles
        gold = gold_passages(row.question, index.find_titled if index else lambda _: ())
        ranks = gold_ranks(gold, evidence, titles), gold_ranks(gold_pages(gold), evidence, titles)
        retrieved.append(RetrievedPassages(evidence, *ranks, row.question.hops, row.question.type))
    # the passages of several searches have no order of relevance
    ranked = ledger.answered[Search.__name__] <= len(retrieved)
    return summarise_retrieval(retrieved, ranked=ranked, seed=seed)
