"""A question as Every Eval Ever has it: what was asked, said, scored and spent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from kgqa.artifacts.trace import TracedQuestion
from kgqa.report.exports.transcript import MODEL_CALLS, RETRIEVALS, Turn, is_agentic, turns
from kgqa.report.questions import ReportedQuestion
from kgqa.types import Json
from kgqa.util.fs import text_digest


def sample(reported: ReportedQuestion) -> dict[str, Json]:
    """Return a question as a sample, without the keys that name its record. A failed question has the score 0 and its
    error.
    """
    row, traced = reported.row, reported.traced
    told, looked_up, single = list(_turns(traced)), _count_lookups(traced), _is_single(traced)
    reply = told[-1] if single else None
    thought = {"reasoning_trace": [reply.thought]} if reply and reply.thought else {}
    return {
        "sample_id": row.id,
        "sample_hash": text_digest("".join([row.question, *row.gold])),
        "interaction_type": "single_turn" if single else "agentic" if is_agentic(traced) else "multi_turn",
        "input": {
            "raw": row.question,
            "formatted": "\n\n".join(turn.content for turn in told[:-1]) if single else None,
            "reference": list(row.gold),
        },
        "output": {"raw": [reply.content], **thought} if reply else None,
        "messages": None if single else _messages(told),
        "answer_attribution": _attribution(row.answer, told, single=single),
        "evaluation": {
            "score": row.em or 0.0,
            "is_correct": row.em == 1,
            "num_turns": len(told),
            "tool_calls_count": looked_up,
        },
        "token_usage": _tokens(reported),
        "performance": {"generation_time_ms": _milliseconds(traced)},
        "error": row.error,
        "metadata": _metadata(reported),
    }


def _turns(traced: TracedQuestion) -> Iterator[Turn]:
    """Yield messages in the order of the calls; what was looked up is said by a tool, as titles of passages."""
    for call in traced.calls:
        if call.kind in MODEL_CALLS:
            yield from turns(call)
        elif call.kind == "search" and call.items is not None:
            found = [passage["title"] for passage in call.items]
            yield Turn("tool", json.dumps({"query": call.request["query"], "passages": found}, ensure_ascii=False))


def _is_single(traced: TracedQuestion) -> bool:
    """Return whether one model call was answered and nothing was retrieved."""
    asked = [call for call in traced.calls if call.kind in MODEL_CALLS]
    return len(asked) == 1 and asked[0].error is None and not _count_lookups(traced)


def _count_lookups(traced: TracedQuestion) -> int:
    return sum(call.kind in RETRIEVALS for call in traced.calls)


def _messages(told: Sequence[Turn]) -> list[dict[str, Json]]:
    return [
        {"turn_idx": number, "role": turn.role, "content": turn.content, "reasoning_trace": turn.thought or None}
        for number, turn in enumerate(told)
    ]


def _attribution(answer: str | None, told: Sequence[Turn], *, single: bool) -> list[dict[str, Json]]:
    """Return which message contains the answer: the last reply, or none."""
    if answer is None or not told:
        return []
    place = 0 if single else len(told) - 1
    return [
        {
            "turn_idx": place,
            "source": "output.raw" if single else f"messages[{place}].content",
            "extracted_value": answer,
            "extraction_method": "custom",
            "is_terminal": True,
        }
    ]


def _tokens(reported: ReportedQuestion) -> dict[str, Json]:
    usages = [usage for call in reported.traced.calls if (usage := call.usage)]
    asked = sum(usage.prompt_tokens for usage in usages)
    written = sum(usage.output_tokens for usage in usages)
    return {
        "input_tokens": asked,
        "output_tokens": written,
        "total_tokens": asked + written,
        "input_tokens_cache_read": sum(usage.cached_tokens for usage in usages),
        "reasoning_tokens": sum(usage.reasoning_tokens for usage in usages),
    }


def _milliseconds(traced: TracedQuestion) -> float:
    return sum(1000 * usage.seconds for call in traced.calls if (usage := call.usage))


def _metadata(reported: ReportedQuestion) -> dict[str, str]:
    """Return what kgqa knows beyond that: texts, as the format wants."""
    row = reported.row
    told = {"f1": row.f1, "support_recall": row.support_recall, "hops": row.hops, "type": row.type or None}
    shown = {key: str(value) for key, value in told.items() if value is not None}
    evidence = reported.traced.prediction.evidence
    judged = {"verdict": row.verdict} if row.verdict else {}
    return {**shown, **judged, **({"evidence": json.dumps(list(evidence))} if evidence else {})}
