"""A call as a span: OpenInference's kind of it, and its attributes under OpenInference's names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.trace import TracedCall
from kgqa.report.exports.transcript import MODEL_CALLS, model_of, reply_text, turns, whole
from kgqa.types import Json

PARAMETERS = ("max_tokens", "temperature", "top_p", "stop", "seed")  # of a call, where it has them


@dataclass(frozen=True, slots=True)
class Span:
    """`error`: why there is no outcome."""

    name: str
    kind: str  # LLM, RETRIEVER, RERANKER, CHAIN, AGENT, EVALUATOR
    values: Mapping[str, Json]
    error: str | None = None


def call_span(run: FinishedRun, call: TracedCall, shown: Mapping[str, Json]) -> Span:
    """Return `shown`: the call as JSON, with as many texts of a ranking as there is room for."""
    if call.kind in MODEL_CALLS:
        return Span(f"{call.kind} {call.template}", "LLM", _model_values(run, call), call.error)
    if call.kind == "rank":
        return Span("rank", "RERANKER", _ranking_values(run, call, shown), call.error)
    asked = call.request["query"] if call.kind == "search" else call.request["passage_id"]
    values = {
        "input.value": asked,
        **_documents("retrieval.documents", _list_documents(call)),
        "metadata": _metadata(call),
    }
    return Span(call.kind, "RETRIEVER", values, call.error)


def _model_values(run: FinishedRun, call: TracedCall) -> dict[str, Json]:
    told, usage = list(turns(call)), call.usage
    asked, replied = (told[:-1], told[-1:]) if call.error is None else (told, [])
    values: dict[str, Json] = {
        "llm.model_name": model_of(run, call.role or ""),
        "llm.invocation_parameters": json.dumps({key: call.request[key] for key in PARAMETERS if key in call.request}),
        **_input_values([{"role": turn.role, "content": turn.content} for turn in asked]),
        "output.value": reply_text(call) or "",
        "metadata": _metadata(call),
    }
    for side, messages in (("input", asked), ("output", replied)):
        for number, turn in enumerate(messages):
            values[f"llm.{side}_messages.{number}.message.role"] = turn.role
            values[f"llm.{side}_messages.{number}.message.content"] = turn.content
    if usage:
        values |= {
            "llm.token_count.prompt": usage.prompt_tokens,
            "llm.token_count.completion": usage.output_tokens,
            "llm.token_count.total": usage.prompt_tokens + usage.output_tokens,
            "llm.token_count.prompt_details.cache_read": usage.cached_tokens,
            "llm.token_count.completion_details.reasoning": usage.reasoning_tokens,
        }
    if call.kind == "generate" and call.error is None:
        values["llm.finish_reason"] = call.reply["finish"]
    return values


def _input_values(messages: Sequence[Mapping[str, str]]) -> dict[str, Json]:
    """Return the whole conversation: some readers (Langfuse) look at no message beside it."""
    if len(messages) == 1:
        return {"input.value": messages[0]["content"], "input.mime_type": "text/plain"}
    return {"input.value": json.dumps(messages, ensure_ascii=False), "input.mime_type": "application/json"}


def _ranking_values(run: FinishedRun, call: TracedCall, shown: Mapping[str, Json]) -> dict[str, Json]:
    scorer = str(call.request.get("scorer", "ranker"))
    scores = shown["reply"] if call.items is not None else [None] * len(shown["texts"])
    ranked = [{"content": text, "score": score} for text, score in zip(shown["texts"], scores, strict=True)]
    return {
        "input.value": call.request["query"],
        "reranker.query": call.request["query"],
        "reranker.model_name": run.choices.get(scorer, scorer),
        "reranker.top_k": len(ranked),
        **_documents("reranker.output_documents", ranked),
        "metadata": json.dumps({"texts": len(call.request["texts"]), "cached": call.cached}),
    }


def _list_documents(call: TracedCall) -> list[Mapping[str, Json]]:
    items = call.items or []
    if call.kind == "triples":
        return [{"content": f"<{'; '.join(triple)}>"} for triple in items]
    if call.kind == "neighbours":
        return [{"id": passage_id} for passage_id in items]
    return [
        {"id": each["id"], "content": each.get("text", ""), "metadata": json.dumps({"title": each["title"]})}
        for each in items
    ]


def _documents(prefix: str, found: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    return {
        f"{prefix}.{number}.document.{key}": value
        for number, document in enumerate(found)
        for key, value in document.items()
    }


def _metadata(call: TracedCall) -> str:
    """Return what OpenInference has no name for."""
    reply = call.reply if isinstance(call.reply, dict) else {}
    told = {"role": call.role, "template": call.template, "cached": call.cached, "flags": reply.get("flags")}
    return json.dumps({key: value for key, value in told.items() if value is not None}, ensure_ascii=False)


def attributes(values: Mapping[str, Json]) -> list[dict[str, Json]]:
    """Return values as attributes of OTLP/JSON: integers are strings there, and values without a JSON type are
    omitted.
    """
    return list(_attributes(values))


def _attributes(values: Mapping[str, Json]) -> Iterator[dict[str, Json]]:
    for key, value in values.items():
        match value:
            case bool():
                yield {"key": key, "value": {"boolValue": value}}
            case int():
                yield {"key": key, "value": {"intValue": str(value)}}
            case float() if isfinite(value):
                yield {"key": key, "value": {"doubleValue": value}}
            case str():
                yield {"key": key, "value": {"stringValue": whole(value)}}
