"""OpenTelemetry's OTLP in its JSON encoding, with the attributes of OpenInference: one trace per question.

A run stores the duration of calls, not their start: spans follow one another, and the last one ends with the run. A
second export has the same ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import NamedTuple

from kgqa.artifacts.run import AS_READER, FinishedRun
from kgqa.artifacts.trace import TracedCall
from kgqa.extras.exports.every_eval_ever import UNSET, end_time, run_id
from kgqa.report.questions import ReportedQuestion, RunQuestions, write_jsonl
from kgqa.scoring.questions import METRICS
from kgqa.types import Json
from kgqa.util.digests import text_digest

MODEL_CALLS = ("generate", "choose")
PARAMETERS = ("max_tokens", "temperature", "top_p", "stop", "seed")  # of some calls
# OTLP's numbers of a span's kind and status
_INTERNAL, _OK, _ERROR = 1, 1, 2
BEST = 10  # texts of a ranking
_LEAST = 1_000  # nanoseconds of a span


class _Span(NamedTuple):
    name: str
    kind: str  # LLM, RETRIEVER, CHAIN, EVALUATOR
    values: Mapping[str, Json]
    error: str | None = None
    seconds: float = 0.0

    def json(self, trace: str, span: str, parent: str, start: int, end: int) -> dict[str, Json]:
        """Return the span with its ids and its times in nanoseconds."""
        return {
            "traceId": trace,
            "spanId": span,
            "parentSpanId": parent,
            "name": self.name,
            "kind": _INTERNAL,
            "startTimeUnixNano": str(start),
            "endTimeUnixNano": str(end),
            "attributes": list(_attributes({"openinference.span.kind": self.kind, **self.values})),
            "status": {"code": _OK}
            if self.error is None
            else {"code": _ERROR, "message": self.error},
        }


def write_otlp(run: FinishedRun, folder: Path) -> None:
    """Write spans.jsonl. Each line is a request for a collector with the spans of one question."""
    write_jsonl(_requests(run), folder / "spans.jsonl")


def _requests(run: FinishedRun) -> Iterator[dict[str, Json]]:
    now = int((end_time(run).timestamp() - run.metrics.cost.method.seconds) * 1e9)
    session, version = f"{run.title} {run_id(run)}", run.manifest.kgqa.version
    resource = {
        "service.name": "kgqa",
        "service.version": version,
        "openinference.project.name": run.title,
    }
    for reported in RunQuestions(run):
        trace = text_digest(f"{session}\n{reported.traced.question.id}", 32)
        root, start, spans = text_digest(f"{trace} root", 16), now, []
        calls = (_call(run, call) for call in reported.traced.calls if call.kind != "count_tokens")
        for number, span in enumerate([*calls, *_evaluations(reported)]):
            end = now + max(_LEAST, int(span.seconds * 1e9))
            spans.append(span.json(trace, text_digest(f"{trace} {number}", 16), root, now, end))
            now = end
        spans.append(
            _question(run, reported, session).json(trace, root, "", start, max(now, start + _LEAST))
        )
        scope = {"scope": {"name": "kgqa", "version": version}, "spans": spans}
        yield {
            "resourceSpans": [
                {"resource": {"attributes": list(_attributes(resource))}, "scopeSpans": [scope]}
            ]
        }


def _question(run: FinishedRun, reported: ReportedQuestion, session: str) -> _Span:
    row, traced = reported.row, reported.traced
    facts = {key: row[key] for key in ("question_id", "gold", "hops", "type", "flags")}
    values = {
        "input.value": row["question"],
        "output.value": row["answer"] or "",
        "session.id": session,
        "metadata": _json({**facts, "evidence": list(traced.prediction.evidence or ())}),
    }
    return _Span(run.choices["method"], "CHAIN", values, row["error"])


def _evaluations(reported: ReportedQuestion) -> Iterator[_Span]:
    row, judgement = reported.row, reported.judgement
    if numbers := {name: row[name] for name in METRICS if row.get(name) is not None}:
        yield _Span(
            "score",
            "EVALUATOR",
            {"input.value": row["answer"] or "", "output.value": _json(numbers)},
        )
    if judgement:
        values = {"input.value": judgement.answer or "", "output.value": judgement.shown}
        yield _Span(f"judge {judgement.judge}", "EVALUATOR", values)


def _call(run: FinishedRun, call: TracedCall) -> _Span:
    if call.kind in MODEL_CALLS:
        seconds = call.usage.seconds if call.usage else 0.0
        return _Span(
            f"{call.kind} {call.template}", "LLM", _model_values(run, call), call.error, seconds
        )
    about = call.request.get("query", call.request.get("passage_id"))
    values = {"input.value": about, "metadata": _json({"cached": call.cached})}
    for number, document in enumerate(_documents(call)):
        values |= {
            f"retrieval.documents.{number}.document.{key}": value for key, value in document.items()
        }
    return _Span(call.kind, "RETRIEVER", values, call.error)


def _documents(call: TracedCall) -> Iterator[dict[str, Json]]:
    """Yield the passages or triples of a reply, or the best texts of a ranking with their scores."""
    items = call.items or []
    if call.kind == "rank":
        best = sorted(zip(items, call.request["texts"], strict=False), reverse=True)[:BEST]
        yield from ({"content": text, "score": score} for score, text in best)
        return
    for item in items:
        if isinstance(item, dict):
            yield {
                "id": item["id"],
                "content": item.get("text", ""),
                "metadata": _json({"title": item["title"]}),
            }
        else:
            yield {"id": item} if isinstance(item, str) else {"content": f"<{'; '.join(item)}>"}


def _model_values(run: FinishedRun, call: TracedCall) -> dict[str, Json]:
    prompt = call.request["prompt"]
    messages = [{"role": role, "content": content} for role, content, *_ in prompt["messages"]]
    text = call.text or ""
    if call.kind == "choose" and call.error is None:
        _, text = max(
            zip(call.reply["logprobs"], call.request["options"], strict=True),
            key=lambda pair: pair[0],
        )
    replies = [] if call.error else [{"role": "assistant", "content": f"{prompt['prefill']}{text}"}]
    flags = [] if call.error else call.reply["flags"]
    values: dict[str, Json] = {
        "llm.model_name": model_of(run, call.role or ""),
        "llm.invocation_parameters": _json(
            {key: call.request[key] for key in PARAMETERS if key in call.request}
        ),
        # the complete conversation, because Langfuse does not read the messages below
        "input.value": messages[0]["content"] if len(messages) == 1 else _json(messages),
        "output.value": "" if call.error else text,
        "metadata": _json(
            {"role": call.role, "template": call.template, "cached": call.cached, "flags": flags}
        ),
    }
    for side, listed in (("input", messages), ("output", replies)):
        for number, message in enumerate(listed):
            for key, part in message.items():
                values[f"llm.{side}_messages.{number}.message.{key}"] = part
    if usage := call.usage:
        values |= {
            "llm.token_count.prompt": usage.prompt_tokens,
            "llm.token_count.completion": usage.output_tokens,
            "llm.token_count.total": usage.tokens,
            "llm.token_count.prompt_details.cache_read": usage.cached_tokens,
            "llm.token_count.completion_details.reasoning": usage.reasoning_tokens,
        }
    return values


def model_of(run: FinishedRun, role: str) -> str:
    """Return the model of a role, such as "gpt_4o_mini@openai" if it has its own engine."""
    roles = {
        key: value for key, value, _ in run.settings if key.startswith("roles.") and value != UNSET
    }
    own = roles.get(f"roles.{role}") or (roles.get("roles.reader", "") if role in AS_READER else "")
    model = run.choices.get("model", "")
    return f"{model}{own}" if own.startswith("+") else own or model


def _attributes(values: Mapping[str, Json]) -> Iterator[dict[str, Json]]:
    """Yield values as in OTLP/JSON: integers are strings, and values without a JSON type are omitted."""
    for key, value in values.items():
        match value:
            case bool():
                yield {"key": key, "value": {"boolValue": value}}
            case int():
                yield {"key": key, "value": {"intValue": str(value)}}
            case float() if isfinite(value):
                yield {"key": key, "value": {"doubleValue": value}}
            case str():
                # a lone surrogate becomes a question mark
                yield {
                    "key": key,
                    "value": {"stringValue": value.encode("utf-8", "replace").decode()},
                }


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)
