"""A run as two flat tables, one row a question and one row a call, for programs that read columns.

What differs from method to method is JSON in a text, so that a column has one type whatever the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.trace import TracedCall, read_trace
from kgqa.report.questions import ReportedQuestion, load_reported_questions, order_ids
from kgqa.types import Json

Value = str | int | float | bool | list[str] | None
Row = Mapping[str, Value]


def prediction_rows(run: FinishedRun) -> Iterator[Row]:
    """Return the prediction rows in the data file's order: shares in 0..1, costs as if nothing had been cached;
    `flags` and `figures` as JSON.
    """
    rows = {reported.row.id: _prediction(reported) for reported in load_reported_questions(run)}
    yield from (rows[question_id] for question_id in order_ids(run, rows))


def call_rows(run: FinishedRun) -> Iterator[Row]:
    """Yield calls in the order in which their questions ended.

    asked, reply: JSON, as in the trace; text: what a model wrote; path: places inside the question's program.
    """
    for traced in read_trace(run.folder):
        for number, call in enumerate(traced.calls):
            yield _call(traced.question.id, number, call)


def _prediction(reported: ReportedQuestion) -> Row:
    row, prediction = reported.row, reported.traced.prediction
    return {
        "id": row.id,
        "question": row.question,
        "gold": list(row.gold),
        "answer": row.answer,
        "error": row.error,
        "em": row.em,
        "f1": row.f1,
        "support_recall": row.support_recall,
        "verdict": row.verdict,
        "hops": row.hops,
        "type": row.type,
        "evidence": list(prediction.evidence or ()),
        "evidence_titles": list(prediction.evidence_titles) if row.error is None else None,
        "flags": _json(row.flags),
        "figures": _json(prediction.figures),
        "context_tokens": row.context_tokens,
        "calls": row.calls,
        "prompt_tokens": row.prompt_tokens,
        "output_tokens": row.output_tokens,
    }


def _call(question_id: str, number: int, call: TracedCall) -> Row:
    usage = call.usage
    return {
        "question_id": question_id,
        "number": number,
        "path": ".".join(map(str, call.path)),
        "call": call.kind,
        "role": call.role,
        "template": call.template,
        "asked": _json({key: value for key, value in call.request.items() if key != "role"}),
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


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)
