"""From a run's answers to `metrics.json`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kgqa.artifacts.metrics import UNDEFINED, Chains, Metrics, QuestionSeconds, Retrieval, ScoreSummary
from kgqa.artifacts.predictions import Prediction
from kgqa.artifacts.schema import extend
from kgqa.calls import Search
from kgqa.experiment.run.answering import Answers
from kgqa.experiment.session.experiment import Experiment
from kgqa.kg.graph import ReadChains, chain_statistics
from kgqa.runtime.costs import PriceOf
from kgqa.scoring.questions import ScoredQuestion, score_question
from kgqa.scoring.retrieval import Page, RetrievedPassages, gold_pages, gold_passages, gold_places, summarise_retrieval
from kgqa.scoring.summary import summarise
from kgqa.types import Question


def measure(experiment: Experiment, answers: Answers, prices: PriceOf, page: Page) -> Metrics:
    ledger, rows, retrieved = answers.ledger, list[ScoredQuestion](), list[RetrievedPassages]()
    searches = experiment.searches or "reranker" in experiment.method.uses
    for question, prediction in _select_answered(experiment, answers):
        rows.append(_score(question, prediction, experiment.profile))
        if searches:
            retrieved.append(_measure_retrieval(question, prediction, page))
    summary = summarise(rows, seed=experiment.settings.seed)
    return extend(
        Metrics,
        summary if experiment.asks_models else _without_answers(summary),
        cost=ledger.costs(len(rows), prices),
        throughput=answers.throughput,
        calls=dict(ledger.answered),
        cache_hits=dict(ledger.hits),
        question_seconds=_quantiles(answers.model_seconds) if experiment.asks_models else None,
        call_seconds={kind: round(seconds, 6) for kind, seconds in sorted(ledger.seconds.items())},
        retrieval=_retrieval(experiment, answers, retrieved) if searches and summary.failed < len(rows) else None,
        chains=_chains(experiment.questions, answers),
    )


def _quantiles(seconds: Sequence[float]) -> QuestionSeconds:
    import numpy as np

    half, most = np.quantile(seconds, (0.5, 0.95))
    return QuestionSeconds(p50=round(float(half), 3), p95=round(float(most), 3))


def score_answers(experiment: Experiment, answers: Answers) -> list[ScoredQuestion]:
    """In the order of the questions. Passages and evidence are left behind: they make up nearly all of a question."""
    pairs = _select_answered(experiment, answers)
    return [_score(question, prediction, experiment.profile) for question, prediction in pairs]


def _select_answered(experiment: Experiment, answers: Answers) -> Iterator[tuple[Question, Prediction]]:
    """Yield each question with its prediction."""
    return ((question, answers.predictions[question.id]) for question in experiment.questions)


def _score(question: Question, prediction: Prediction, profile: str) -> ScoredQuestion:
    row = score_question(question, prediction, profile)
    return replace(
        row,
        question=replace(row.question, passages=(), pinned=(), quoted=(), facts=(), decomposition=()),
        prediction=replace(row.prediction, evidence=(), evidence_titles=()),
    )


def _without_answers(summary: ScoreSummary) -> ScoreSummary:
    """Return the summary without scores of answers, for a run that only retrieves."""
    scores = summary.scores.replace(em=UNDEFINED, f1=UNDEFINED, containment=None, struct_em=None)
    bare = summary.replace(wording=None, found_and_right=None)
    return bare.replace(answerless=0, scores=scores, by_hops={}, by_type={}, profiles={})


def _retrieval(experiment: Experiment, answers: Answers, retrieved: Sequence[RetrievedPassages]) -> Retrieval:
    # what several searches gave has no order of relevance
    ranked = answers.ledger.answered[Search.__name__] <= len(retrieved)
    return summarise_retrieval(retrieved, ranked=ranked, seed=experiment.settings.seed)


def _measure_retrieval(question: Question, prediction: Prediction, page: Page) -> RetrievedPassages:
    """Return the passages that a question retrieved: none if it failed."""
    evidence, titles = prediction.evidence or (), prediction.evidence_titles
    gold = gold_passages(question, page)
    places = gold_places(gold, evidence, titles), gold_places(gold_pages(gold), evidence, titles)
    return RetrievedPassages(evidence, *places, question.hops, question.type)


def _chains(questions: Sequence[Question], answers: Answers) -> Chains | None:
    if not answers.chains:
        return None
    pairs = ((question, answers.predictions[question.id]) for question in questions)
    answered = [
        ReadChains(question.support, prediction.evidence or (), answers.chains.get(question.id, ()))
        for question, prediction in pairs
        if prediction.error is None
    ]
    chains = chain_statistics(answered)
    return Chains(
        length=chains.chain_length,
        documents_per_question=chains.documents,
        document_error_rate_percent=chains.document_error_rate,
    )
