"""From a run's answers to `metrics.json`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from kgqa.calls import Neighbours, Search
from kgqa.errors import DataError
from kgqa.kg.statistics import chain_statistics
from kgqa.runtime.costs import Ledger
from kgqa.runtime.scheduler import Record
from kgqa.scoring.retrieval import RetrievedPassages, gold_passages, gold_places, summarise_retrieval
from kgqa.scoring.summary import ScoredQuestion, summarise
from kgqa.types import Answer, Json, Question

if TYPE_CHECKING:
    from kgqa.experiment.session.session import Session

Outcomes = Mapping[str, Answer | Exception]


def titled(outcome: Answer | Exception, question: Question, records: Iterable[Record]) -> Answer | Exception:
    """The answer with the titles of its evidence, which are those of the passages the question saw."""
    if isinstance(outcome, Exception):
        return outcome
    seen = {passage.id: passage.title for passage in (*question.passages, *question.pinned)}
    for record in records:
        if isinstance(record.call, Search | Neighbours) and not isinstance(record.reply, Exception):
            seen |= {passage.id: passage.title for passage in record.reply}
    return replace(outcome, evidence_titles=tuple(seen.get(each, "") for each in outcome.evidence))


def measure(session: Session, outcomes: Outcomes, ledger: Ledger) -> dict[str, Json]:
    rows = [scored_question(question, outcomes[question.id], session.profile) for question in session.questions]
    metrics = summarise(rows, seed=session.settings.seed)
    if not session.asks_models:
        metrics |= _WITHOUT_ANSWERS
        metrics["scores"] |= {score: {"mean": None, "low": None, "high": None, "n": 0} for score in ("em", "f1")}
        metrics["scores"].pop("struct_em", None)
    metrics["cost"] = ledger.json(len(rows), session.bench.engines.prices)
    metrics["throughput"] = session.bench.throughput(ledger)
    metrics["calls"] = dict(ledger.answered)
    metrics["cache_hits"] = dict(ledger.hits)
    metrics["call_seconds"] = {kind: round(seconds, 6) for kind, seconds in sorted(ledger.seconds.items())}
    if session.searches or "reranker" in session.method.uses:
        retrieved = [_retrieved(session, question, outcomes[question.id]) for question in session.questions]
        ranked = ledger.answered[Search.__name__] <= len(rows)  # what several searches gave has no order of relevance
        metrics["retrieval"] = summarise_retrieval(retrieved, ranked=ranked, seed=session.settings.seed)
    answered = [(q, a) for q in session.questions if isinstance(a := outcomes[q.id], Answer)]
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


def _retrieved(session: Session, question: Question, outcome: Answer | Exception) -> RetrievedPassages:
    """A failed question has retrieved nothing."""
    index = session.bench.index  # None: the question's own passages were ranked
    answer = outcome if isinstance(outcome, Answer) else Answer("")
    gold = gold_passages(question, index.holds if index else lambda _: True)
    places = gold_places(gold, answer.evidence, answer.evidence_titles)
    return RetrievedPassages(answer.evidence, places, question.hops, question.type)
