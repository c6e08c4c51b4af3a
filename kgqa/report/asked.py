"""The page of one question that somebody put to their documents: the answer, its steps, and all that led there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from kgqa.artefacts.asked import Asked
from kgqa.artefacts.trace import TracedQuestion
from kgqa.json_texts import json_bytes
from kgqa.report.html import Served
from kgqa.report.packing import Packing, abridged, packed_line, packed_list
from kgqa.report.page import EXPLORER, page_parts
from kgqa.report.questions import QuestionRow
from kgqa.report.selection import Group, Selection

ROOM = 1 << 40  # characters: one question is never left out


def asked_page(asked: Asked, served: Served | None = None) -> Iterator[str]:
    """The page's parts, one after another; the explorer of a run's report, without scores. served: it is no file."""
    traced, packing, selection = asked.traced, Packing(), Selection(ROOM)
    question_id = traced.question.id
    selection.wants(question_id, Group.OTHER)
    shown = {**traced.json(), "calls": [abridged(call) for call in traced.calls], "judgement": None}
    selection.add(question_id, Group.OTHER, packing.pack(shown))
    yield from page_parts(
        "asked.html.j2",
        ["report.css"],
        EXPLORER,
        asked=asked,
        served=served,
        traces=selection,
        index=packed_list([json_bytes({**asdict(_row(traced)), "other": None})]),
        lines=[packed_line(packing.shared), f"\n{selection.line(question_id)}"],
    )


def _row(traced: TracedQuestion) -> QuestionRow:
    """As of a run's question, without gold answers and scores."""
    question, prediction = traced.question, traced.prediction
    usages = [usage for call in traced.calls if (usage := call.usage)]
    return QuestionRow(
        id=question.id,
        question=question.text,
        answer=prediction.answer,
        gold=(),
        em=None,
        f1=None,
        support_recall=None,
        hops=None,
        type="",
        flags=dict(prediction.flags),  # asdict takes a Counter apart
        error=prediction.error,
        context_tokens=prediction.context_tokens,
        calls=len(traced.calls),
        prompt_tokens=sum(usage.prompt_tokens for usage in usages),
        output_tokens=sum(usage.output_tokens for usage in usages),
        verdict=None,
    )
