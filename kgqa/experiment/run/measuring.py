"""From a run's answers to `metrics.json`."""

from __future__ import annotations

from collections.abc import Callable

from kgqa.calls import Search
from kgqa.errors import DataError
from kgqa.experiment.run.answering import Answers
from kgqa.experiment.session.experiment import Experiment
from kgqa.kg.statistics import chain_statistics
from kgqa.runtime.costs import PriceOf
from kgqa.scoring.retrieval import RetrievedPassages, gold_passages, gold_places, summarise_retrieval
from kgqa.scoring.summary import ScoredQuestion, summarise
from kgqa.types import Answer, Json, Passage, Question


def measure(
    experiment: Experiment, answers: Answers, prices: PriceOf, holds: Callable[[Passage], bool]
) -> dict[str, Json]:
    """`holds`: whether a passage is in the corpus that was searched."""
    questions, outcomes, ledger = experiment.questions, answers.outcomes, answers.ledger
    rows = [scored_question(question, outcomes[question.id], experiment.profile) for question in questions]
    metrics = summarise(rows, seed=experiment.settings.seed)
    if not experiment.asks_models:
        metrics |= _WITHOUT_ANSWERS
        metrics["scores"] |= {score: {"mean": None, "low": None, "high": None, "n": 0} for score in ("em", "f1")}
        metrics["scores"].pop("struct_em", None)
    metrics["cost"] = ledger.json(len(rows), prices)
    metrics["throughput"] = answers.throughput
    metrics["calls"] = dict(ledger.answered)
    metrics["cache_hits"] = dict(ledger.hits)
    metrics["call_seconds"] = {kind: round(seconds, 6) for kind, seconds in sorted(ledger.seconds.items())}
    if experiment.searches or "reranker" in experiment.method.uses:
        retrieved = [_retrieved(question, outcomes[question.id], holds) for question in questions]
        ranked = ledger.answered[Search.__name__] <= len(rows)  # what several searches gave has no order of relevance
        metrics["retrieval"] = summarise_retrieval(retrieved, ranked=ranked, seed=experiment.settings.seed)
    answered = [(q, a) for q in questions if isinstance(a := outcomes[q.id], Answer)]
    if any("chains" in answer.notes for _, answer in answered):
        chains = chain_statistics(answered)
        metrics["chains"] = {
            "length": chains.chain_length,
            "documents_per_question": chains.documents,
            "document_error_rate_percent": chains.document_error_rate,
        }
    return metrics


_WITHOUT_ANSWERS: dict[str, Json] = {"answerless": 0, "by_hops": {}, "by_type": {}, "profiles": {}}


def scored_question(question: Question, outcome: Answer | Exception, profile: str) -> ScoredQuestion:
    if not question.answers:
        raise DataError(f"question {question.id} has no answers, so nothing can be scored against it")
    answer = outcome if isinstance(outcome, Answer) else None
    return ScoredQuestion(
        question_id=question.id,
        answer=answer.text if answer else None,
        error=None if answer else f"{type(outcome).__name__}: {outcome}",
        golds=question.answers,
        profile=profile,
        evidence=answer.evidence if answer else (),
        support=question.support,
        given=tuple(passage.id for passage in question.passages),
        context_tokens=answer.context_tokens if answer else None,
        hops=question.hops,
        type=question.type,
        flags=answer.flags if answer else {},
        figures=answer.figures if answer else {},
    )


def _retrieved(question: Question, outcome: Answer | Exception, holds: Callable[[Passage], bool]) -> RetrievedPassages:
    """A failed question has retrieved nothing."""
    answer = outcome if isinstance(outcome, Answer) else Answer("")
    places = gold_places(gold_passages(question, holds), answer.evidence, answer.evidence_titles)
    return RetrievedPassages(answer.evidence, places, question.hops, question.type)
