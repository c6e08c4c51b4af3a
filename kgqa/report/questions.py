"""The questions and calls of a run as rows. Values that depend on the method are JSON texts: one type per column."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from kgqa.artifacts.predictions import PREDICTIONS, question_ids
from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.schema import AGAIN
from kgqa.artifacts.trace import TRACE, TracedQuestion, read_frames, read_trace
from kgqa.artifacts.verdicts import Judgement, Judgements
from kgqa.errors import DataError
from kgqa.scoring.questions import empty_scores, percent_scores, score_question
from kgqa.types import Json
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
    calls: int
    model_calls: int
    prompt_tokens: int
    output_tokens: int

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


def report_question(
    traced: TracedQuestion, run: FinishedRun | None = None, judgements: Judgements | None = None
) -> ReportedQuestion:
    """Return a question of a run with its row. Without a run it has no scores, because there is no gold answer."""
    question, prediction = traced.question, traced.prediction
    judgement = judgements.of(prediction) if judgements else None
    scores = empty_scores(None)
    if run is not None:
        scores = percent_scores(score_question(question, prediction, run.metrics.profile), run.metrics)
    usages = [usage for call in traced.calls if (usage := call.usage)]
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
        calls=len(traced.calls),
        model_calls=len(usages),
        prompt_tokens=sum(usage.prompt_tokens for usage in usages),
        output_tokens=sum(usage.output_tokens for usage in usages),
    )
    return ReportedQuestion(row, traced, judgement)


def load_reported_questions(run: FinishedRun) -> Iterator[ReportedQuestion]:
    """Yield the questions in the order in which they finished."""
    judgements = Judgements(run.folder)
    return (report_question(traced, run, judgements) for traced in read_trace(run.folder))


def index_questions(run: FinishedRun, judgements: Judgements) -> tuple[dict[str, QuestionRow], dict[str, int]]:
    """Return the rows in the data file's order, and where each question is in the trace. Raises as `order_ids`."""
    rows, offsets = dict[str, QuestionRow](), dict[str, int]()
    for offset, traced in read_frames(run.folder):
        rows[traced.question.id] = report_question(traced, run, judgements).row
        offsets[traced.question.id] = offset
    return {question_id: rows[question_id] for question_id in order_ids(run, rows)}, offsets


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
