"""The page of one question: its answer, the sentences that support it, and every call that led to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from kgqa.artifacts.saved_answer import Quotation
from kgqa.artifacts.trace import TracedQuestion
from kgqa.report.html import question_trace
from kgqa.report.packing import Packing, pack_line, pack_list
from kgqa.report.page import EXPLORER, page_parts
from kgqa.report.questions import QuestionRow, ReportedQuestion
from kgqa.report.selection import Group, Selection
from kgqa.util.jsonio import encode_json

UNLIMITED = 1 << 40  # characters: a page of one question always holds it


def question_page(
    question: ReportedQuestion,
    facts: Sequence[tuple[str, str]],
    steps: Sequence[Quotation] | None = None,
    supported: bool = True,
) -> Iterator[str]:
    """Yield the parts of the page, the explorer of a run's report with one question.

    Args:
        facts: names and values of what answered, shown as a table.
        steps: the quoted sentences; None if the answer is not checked against documents.
        supported: whether one of them contains the answer.
    """
    packing, selection = Packing(), Selection(UNLIMITED)
    selection.wants(question.row.id, Group.OTHER)
    selection.add(question.row.id, Group.OTHER, packing.pack(question_trace(question)))
    yield from page_parts(
        "question_page.html.j2",
        ["report.css"],
        EXPLORER,
        row=question.row,
        facts=facts,
        steps=steps,
        supported=supported,
        traces=selection,
        index=pack_list([encode_json({**asdict(question.row), "other": None})]),
        lines=[pack_line(packing.shared), f"\n{selection.line(question.row.id)}"],
    )


def without_gold(traced: TracedQuestion) -> ReportedQuestion:
    """Return the question as it is shown where no gold answer is known: without scores."""
    question, prediction = traced.question, traced.prediction
    usages = [usage for call in traced.calls if (usage := call.usage)]
    row = QuestionRow(
        id=question.id,
        question=question.text,
        answer=prediction.answer,
        gold=(),
        em=None,
        f1=None,
        support_recall=None,
        hops=None,
        type="",
        flags=dict(prediction.flags),  # asdict cannot copy a Counter
        error=prediction.error,
        context_tokens=prediction.context_tokens,
        calls=len(traced.calls),
        prompt_tokens=sum(usage.prompt_tokens for usage in usages),
        output_tokens=sum(usage.output_tokens for usage in usages),
        verdict=None,
        model_calls=len(usages),
    )
    return ReportedQuestion(row, traced, None)
