"""A run's questions one by one, scored as `metrics.json` scores them all."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace

from kgqa.artifacts.predictions import PREDICTIONS, Prediction, question_ids
from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.schema import AGAIN
from kgqa.artifacts.trace import TRACE, TracedQuestion, read_trace
from kgqa.artifacts.verdicts import Judgement, Judgements
from kgqa.errors import DataError
from kgqa.report.spreadsheet import csv_text
from kgqa.scoring.questions import ScoredQuestion, score_question
from kgqa.types import Question


@dataclass(frozen=True, slots=True)
class QuestionRow:
    """One question: what was asked, what came, how good it is (shares in 0..1) and what it cost."""

    id: str
    question: str
    answer: str | None  # None: the question failed
    gold: tuple[str, ...]
    em: float | None  # None: the run answers nothing, it retrieves
    f1: float | None
    support_recall: float | None  # None: no gold passage is known
    hops: int | None
    type: str
    flags: Mapping[str, int]
    error: str | None
    context_tokens: int | None
    calls: int | None  # None, as its tokens: not counted, see `unread_row`
    prompt_tokens: int | None  # as if nothing had been cached
    output_tokens: int | None
    verdict: str | None  # the judge's, or "unscored"; None: not judged, or another answer was
    model_calls: int | None = None  # of `calls` those that a model answered for this question; None: not counted


@dataclass(frozen=True, slots=True)
class ReportedQuestion:
    """A question's row beside its trace and what the judge said of its answer, if it was judged."""

    row: QuestionRow
    traced: TracedQuestion
    judgement: Judgement | None


def load_reported_questions(run: FinishedRun) -> Iterator[ReportedQuestion]:
    """In the order in which they ended."""
    judgements = Judgements(run.folder)
    for traced in read_trace(run.folder):
        yield load_reported_question(run, traced, judgements)


def load_reported_question(run: FinishedRun, traced: TracedQuestion, judgements: Judgements) -> ReportedQuestion:
    judgement = judgements.of(traced.prediction)
    return ReportedQuestion(_row(run, traced, judgement), traced, judgement)


def build_row(traced: TracedQuestion, profile: str) -> QuestionRow:
    """Of a question that has just ended, in a run that answers and was not judged."""
    return _count(_score_row(score_question(traced.question, traced.prediction, profile), answers=True), traced)


def _row(run: FinishedRun, traced: TracedQuestion, judgement: Judgement | None) -> QuestionRow:
    return _count(unread_row(run, traced.question, traced.prediction, judgement), traced)


def _count(row: QuestionRow, traced: TracedQuestion) -> QuestionRow:
    usages = [usage for call in traced.calls if (usage := call.usage)]
    return replace(
        row,
        calls=len(traced.calls),
        model_calls=len(usages),
        prompt_tokens=sum(usage.prompt_tokens for usage in usages),
        output_tokens=sum(usage.output_tokens for usage in usages),
    )


def unread_row(
    run: FinishedRun, question: Question, prediction: Prediction, judgement: Judgement | None
) -> QuestionRow:
    """Return all but what only the question's calls tell, which are most of a trace."""
    scored = score_question(question, prediction, run.metrics.profile)
    row = _score_row(scored, answers=run.metrics.scores.em.n > 0)
    return replace(row, verdict=judgement.shown) if judgement else row


def _score_row(scored: ScoredQuestion, *, answers: bool) -> QuestionRow:
    """Return `answers`: the run does, so that its answers have scores."""
    question, prediction = scored.question, scored.prediction
    return QuestionRow(
        id=question.id,
        question=question.text,
        answer=scored.answer,
        gold=question.answers,
        em=scored.em if answers else None,
        f1=scored.f1 if answers else None,
        support_recall=scored.support_recall,
        hops=question.hops,
        type=question.type,
        flags=dict(prediction.flags),
        error=prediction.error,
        context_tokens=prediction.context_tokens,
        calls=None,
        prompt_tokens=None,
        output_tokens=None,
        verdict=None,
    )


def same_questions(run: FinishedRun, other: FinishedRun) -> dict[str, QuestionRow]:
    """Return the other run's questions by id, where both answered the same ones and are scored alike.

    Raises:
        DataError: they differ; the message says in what.
    """
    mine, theirs = run.metrics.profile, other.metrics.profile
    if mine != theirs:
        raise DataError(f"{other.folder}: scored by {theirs}, {run.folder} by {mine}; run both with one profile=")
    rows = {question.row.id: question.row for question in load_reported_questions(other)}
    answered = set(question_ids(run.folder))
    if unlike := sorted(answered ^ rows.keys()):
        only = run.folder if unlike[0] in answered else other.folder
        raise DataError(
            f"{other.folder}: {len(unlike):,} questions are not in both it and {run.folder}, the first {unlike[0]}, "
            f"only in {only}; give two runs on the same questions"
        )
    return rows


def order_ids(run: FinishedRun, rows: Container[str]) -> Iterator[str]:
    """Yield what the run answered, in the data file's order. Raises DataError: the trace, which gave the rows, lacks
    one.
    """
    for question_id in question_ids(run.folder):
        if question_id not in rows:
            raise DataError(
                f"{run.folder / TRACE}: no question {question_id}, which {PREDICTIONS} beside it has; {AGAIN}"
            )
        yield question_id


def questions_csv(run: FinishedRun) -> str:
    """Return one line a question, in the data file's order; golds and flags as JSON, nothing for what is not known.

    What a spreadsheet would take for a formula begins with ', see `kgqa.report.spreadsheet`.
    """
    rows = {question.row.id: question.row for question in load_reported_questions(run)}
    names = [field.name for field in fields(QuestionRow)]
    return csv_text([names, *([*_cells(rows[question_id])] for question_id in order_ids(run, rows))])


def _cells(row: QuestionRow) -> Iterator[object]:
    for key, value in asdict(row).items():
        yield json.dumps(value, ensure_ascii=False) if key in ("gold", "flags") else value
