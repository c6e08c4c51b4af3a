"""A run as two flat tables, one row a question and one row a call, for programs that read columns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from kgqa.report.content import FinishedRun
from kgqa.report.questions import QuestionRow, question_ids, scored_questions
from kgqa.runtime.folder import read_trace
from kgqa.types import Json

Kind = Literal["text", "texts", "whole", "real", "truth"]
Row = Mapping[str, Json]

# What differs from method to method is JSON in a text: a column has one type, whatever the run.
PREDICTIONS: Mapping[str, Kind] = {
    "id": "text", "question": "text", "gold": "texts", "answer": "text", "error": "text", "em": "real", "f1": "real",
    "support_recall": "real", "verdict": "text", "hops": "whole", "type": "text", "evidence": "texts",
    "evidence_titles": "texts", "flags": "text", "figures": "text", "context_tokens": "whole", "calls": "whole",
    "prompt_tokens": "whole", "output_tokens": "whole",
}  # fmt: skip
TRACES: Mapping[str, Kind] = {
    "question_id": "text", "number": "whole", "path": "text", "call": "text", "role": "text", "template": "text",
    "asked": "text", "reply": "text", "text": "text", "error": "text", "prompt_tokens": "whole",
    "cached_tokens": "whole", "output_tokens": "whole", "seconds": "real", "cached": "truth", "queued": "real",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tables:
    """Of a finished run. `predictions`: in the data file's order; `traces` are read anew by each iteration."""

    run: FinishedRun

    def predictions(self) -> Iterator[Row]:
        """Shares in 0..1, costs as if nothing had been cached; `flags` and `figures` as JSON."""
        rows = {row.id: _prediction(row, traced) for row, traced in scored_questions(self.run)}
        yield from (rows[question_id] for question_id in question_ids(self.run))

    def traces(self) -> Iterator[Row]:
        """Calls in the order in which their questions ended.

        asked, reply: JSON, as in the trace; text: what a model wrote; path: places inside the question's program.
        """
        for traced in read_trace(self.run.folder):
            for number, call in enumerate(traced["calls"]):
                yield _call(traced["question"]["id"], number, call)


def _prediction(row: QuestionRow, traced: Mapping[str, Json]) -> Row:
    own = {name: getattr(row, name, None) for name in PREDICTIONS}
    listed = {"gold": list(row.gold), "evidence": traced["evidence"], "evidence_titles": traced.get("evidence_titles")}
    return {**own, **listed, "flags": _json(row.flags), "figures": _json(traced.get("figures") or {})}


def _call(question_id: str, number: int, call: Mapping[str, Json]) -> Row:
    apart = ("path", "call", "role", "reply", "cached", "queued")
    reply = call["reply"] if isinstance(call["reply"], Mapping) else {}
    prompt, cached, output, seconds = reply.get("usage") or (None, None, None, None)
    return {
        "question_id": question_id,
        "number": number,
        "path": ".".join(map(str, call["path"])),
        "call": call["call"],
        "role": call.get("role"),
        "template": (call.get("prompt") or {}).get("template"),
        "asked": _json({key: value for key, value in call.items() if key not in apart}),
        "reply": _json(call["reply"]),
        "text": reply.get("text"),
        "error": f"{reply['error']}: {reply['message']}" if "error" in reply else None,
        "prompt_tokens": prompt,
        "cached_tokens": cached,
        "output_tokens": output,
        "seconds": seconds,
        "cached": call["cached"],
        "queued": call["queued"],
    }


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)
