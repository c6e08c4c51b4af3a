"""OpenTelemetry's OTLP in its JSON encoding, with the attributes of OpenInference: a trace a question.

A run keeps how long a call took, not when it was made: spans follow one another, and the last ends where the run did.
Ids are made of the run and the question, so that a second export is the same traces.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.trace import TracedCall
from kgqa.report.exports.rows import write_jsonl
from kgqa.report.exports.spans import Span, attributes, call_span
from kgqa.report.exports.transcript import end_time, is_agentic
from kgqa.report.packing import abridge_trace
from kgqa.report.questions import ReportedQuestion, load_reported_questions
from kgqa.types import Json
from kgqa.util.fs import text_digest

SPANS = "spans.jsonl"
_INTERNAL, _OK, _ERROR = 1, 1, 2  # OTLP's numbers of a span's kind and status
_LEAST = 1_000  # nanoseconds of a span: what takes no time is not to be seen


def write_otlp(run: FinishedRun, folder: Path) -> None:
    """`spans.jsonl`: on each line one request as a collector takes it, with one question's spans."""
    seconds = sum(map(_seconds, load_reported_questions(run)))
    clock = _Clock(int((end_time(run).timestamp() - seconds) * 1e9))
    write_jsonl((_request(run, reported, clock) for reported in load_reported_questions(run)), folder / SPANS)


@dataclass
class _Clock:
    """Nanoseconds since 1970."""

    now: int

    def pass_by(self, seconds: float) -> tuple[int, int]:
        start = self.now
        self.now += max(_LEAST, int(seconds * 1e9))
        return start, self.now


def _seconds(reported: ReportedQuestion) -> float:
    return sum(usage.seconds for call in reported.traced.calls if (usage := call.usage))


def _request(run: FinishedRun, reported: ReportedQuestion, clock: _Clock) -> dict[str, Json]:
    resource = {
        "service.name": "kgqa",
        "service.version": run.manifest.kgqa.version,
        "openinference.project.name": run.title,
    }
    spans = list(_spans(run, reported, clock))
    scope = {"name": "kgqa", "version": run.manifest.kgqa.version}
    return {
        "resourceSpans": [
            {"resource": {"attributes": attributes(resource)}, "scopeSpans": [{"scope": scope, "spans": spans}]}
        ]
    }


def _spans(run: FinishedRun, reported: ReportedQuestion, clock: _Clock) -> Iterator[dict[str, Json]]:
    """Yield the question's own span comes last, since it ends last."""
    trace_id = text_digest(f"{_name(run)}\n{reported.row.id}", 32)
    root_id, start = text_digest(f"{trace_id} root", 16), clock.now
    children = [_call(run, call) for call in reported.traced.calls if call.kind != "count_tokens"]
    for number, (span, seconds) in enumerate([*children, *((each, 0.0) for each in _evaluations(reported))]):
        ids = {"traceId": trace_id, "spanId": text_digest(f"{trace_id} {number}", 16), "parentSpanId": root_id}
        yield _span_json(span, ids, clock.pass_by(seconds))
    root = {"traceId": trace_id, "spanId": root_id, "parentSpanId": ""}
    yield _span_json(_question(run, reported), root, (start, max(clock.now, start + _LEAST)))


def _call(run: FinishedRun, call: TracedCall) -> tuple[Span, float]:
    """Return `abridged`: of a ranking its ten best texts."""
    return call_span(run, call, abridge_trace(call)), call.usage.seconds if call.usage else 0.0


def _question(run: FinishedRun, reported: ReportedQuestion) -> Span:
    row, traced = reported.row, reported.traced
    told = {"question_id": row.id, "gold": list(row.gold), "hops": row.hops, "type": row.type, "flags": dict(row.flags)}
    return Span(
        run.choices["method"],
        "AGENT" if is_agentic(traced) else "CHAIN",
        {
            "input.value": row.question,
            "input.mime_type": "text/plain",
            "output.value": row.answer or "",
            "output.mime_type": "text/plain",
            "session.id": _name(run),
            "metadata": json.dumps({**told, "evidence": list(traced.prediction.evidence or ())}, ensure_ascii=False),
        },
        row.error,
    )


def _evaluations(reported: ReportedQuestion) -> Iterator[Span]:
    row, judgement = reported.row, reported.judgement
    scores = {"em": row.em, "f1": row.f1, "support_recall": row.support_recall}
    known = {name: score for name, score in scores.items() if score is not None}
    if known:
        yield _evaluation("score", row.answer or "", json.dumps(known), "application/json")
    if judgement:
        yield _evaluation(f"judge {judgement.judge}", judgement.answer or "", judgement.shown, "text/plain")


def _evaluation(name: str, answer: str, outcome: str, kind: str) -> Span:
    return Span(name, "EVALUATOR", {"input.value": answer, "output.value": outcome, "output.mime_type": kind})


def _span_json(span: Span, ids: Mapping[str, str], times: tuple[int, int]) -> dict[str, Json]:
    status = {"code": _OK} if span.error is None else {"code": _ERROR, "message": span.error}
    return {
        **ids,
        "name": span.name,
        "kind": _INTERNAL,
        "startTimeUnixNano": str(times[0]),
        "endTimeUnixNano": str(times[1]),
        "attributes": attributes({"openinference.span.kind": span.kind, **span.values}),
        "status": status,
    }


def _name(run: FinishedRun) -> str:
    """Return what tells this run from any other: what it was asked of and by which code."""
    manifest = run.manifest
    return f"{run.title} {text_digest(repr((run.settings, manifest.code, manifest.dataset.sha256)), 8)}"
