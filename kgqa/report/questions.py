"""The questions and calls of a run as rows. Values that depend on the method are JSON texts: one type per column."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kgqa.artifacts.predictions import PREDICTIONS, Prediction, question_ids
from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.schema import AGAIN
from kgqa.artifacts.trace import TRACE, TracedQuestion, read_trace
from kgqa.artifacts.verdicts import Judgement, Judgements
from kgqa.errors import DataError
from kgqa.scoring.questions import empty_scores, percent_scores, score_question
from kgqa.types import Json, Question
from kgqa.util.fs import OUT_ELSEWHERE, explain_storage_errors

Value = str | int | float | bool | list[str] | None
Row = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class QuestionRow:
    """A question with its answer, its scores in percent and its costs without the cache."""

    question_id: str
    question: str
    gold: tuple[str, ...]
    answer: str | None  # None: the question failed
    error: str | None
    scores: Mapping[str, float | None]  # by metric. None: undefined
    verdict: str | None  # the judge's, or "unscored". None: this answer was not judged
    hops: int | None
    type: str
    flags: Mapping[str, int]
    context_tokens: int | None
    # None: the calls were not read
    calls: int | None = None
    model_calls: int | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None

    @property
    def em(self) -> float | None:
        return self.scores.get("em")

    @property
    def is_right(self) -> bool:
        return self.em == 100

    @property
    def f1(self) -> float | None:
        return self.scores.get("f1")

    def json(self) -> dict[str, Json]:
        """Return the values by name, with one key per score."""
        values: dict[str, Json] = {}
        for key, value in asdict(self).items():
            values |= value if key == "scores" else {key: value}
        return values


@dataclass(frozen=True, slots=True)
class ReportedQuestion:
    """A question's row with its trace and the judge's votes on its answer."""

    row: QuestionRow
    traced: TracedQuestion
    judgement: Judgement | None


def load_reported_questions(run: FinishedRun) -> Iterator[ReportedQuestion]:
    """Yield the questions in the order in which they finished."""
    judgements = Judgements(run.folder)
    for traced in read_trace(run.folder):
        yield load_reported_question(run, traced, judgements)


def load_reported_question(run: FinishedRun, traced: TracedQuestion, judgements: Judgements) -> ReportedQuestion:
    judgement = judgements.of(traced.prediction)
    return ReportedQuestion(build_row(run, traced.question, traced.prediction, judgement, traced), traced, judgement)


def build_row(
    run: FinishedRun | None,
    question: Question,
    prediction: Prediction,
    judgement: Judgement | None = None,
    traced: TracedQuestion | None = None,
) -> QuestionRow:
    """Return a question's row.

    run: where the scores are defined. None: no scores, because there is no gold answer. traced: has the calls.
    """
    scores = empty_scores(None)
    if run is not None:
        scores = percent_scores(score_question(question, prediction, run.metrics.profile), run.metrics)
    row = QuestionRow(
        question_id=question.id,
        question=question.text,
        gold=question.answers,
        answer=prediction.scored_answer,
        error=prediction.error,
        scores=scores,
        verdict=judgement.shown if judgement else None,
        hops=question.hops,
        type=question.type,
        flags=dict(prediction.flags),
        context_tokens=prediction.context_tokens,
    )
    if traced is None:
        return row
    usages = [usage for call in traced.calls if (usage := call.usage)]
    prompt, output = sum(u.prompt_tokens for u in usages), sum(u.output_tokens for u in usages)
    return replace(row, calls=len(traced.calls), model_calls=len(usages), prompt_tokens=prompt, output_tokens=output)


def order_ids(run: FinishedRun, rows: Container[str]) -> Iterator[str]:
    """Yield the ids of the predictions, in the data file's order. Raises DataError: a question is not in the trace."""
    for question_id in question_ids(run.folder):
        if question_id not in rows:
            raise DataError(f"{run.folder / TRACE}: no question {question_id}, which {PREDICTIONS} has. {AGAIN}")
        yield question_id


def prediction_rows(run: FinishedRun) -> Iterator[Row]:
    """Yield a row per question, in the data file's order."""
    rows = {}
    for reported in load_reported_questions(run):
        row, prediction = reported.row.json(), reported.traced.prediction
        row["evidence"] = prediction.evidence or ()
        row["evidence_titles"] = prediction.evidence_titles if prediction.error is None else None
        row["figures"] = prediction.figures
        rows[reported.row.question_id] = {key: _value(value) for key, value in row.items()}
    yield from (rows[question_id] for question_id in order_ids(run, rows))


def call_rows(run: FinishedRun) -> Iterator[Row]:
    """Yield a row per call, in the order in which their questions finished.

    request, reply: JSON as in the trace. text: generated by a model. path: see `TracedCall`.
    """
    for traced in read_trace(run.folder):
        for number, call in enumerate(traced.calls):
            usage = call.usage
            yield {
                "question_id": traced.question.id,
                "number": number,
                "path": ".".join(map(str, call.path)),
                "call": call.kind,
                "role": call.role,
                "template": call.template,
                "request": _json({key: value for key, value in call.request.items() if key != "role"}),
                "reply": _json(call.reply),
                "text": call.text,
                "error": call.error,
                "prompt_tokens": usage.prompt_tokens if usage else None,
                "cached_tokens": usage.cached_tokens if usage else None,
                "output_tokens": usage.output_tokens if usage else None,
                "seconds": usage.seconds if usage else None,
                "cached": call.cached,
                "queued": call.queued,
            }


def write_jsonl(rows: Iterable[Mapping[str, Json]], file: Path) -> None:
    # a lone surrogate becomes JSON's own escape
    with (
        explain_storage_errors(file, OUT_ELSEWHERE),
        file.open("w", encoding="utf-8", errors="backslashreplace") as out,
    ):
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")


def _value(value: Json) -> Value:
    result: Value = _json(value) if isinstance(value, Mapping) else list(value) if isinstance(value, tuple) else value
    return result


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)
