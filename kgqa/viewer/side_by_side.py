"""Runs beside each other: their answers question by question, and what paired tests say of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kgqa.experiment.evaluate.comparison import ComparisonRequest, compare_answers
from kgqa.report.questions import QuestionRow
from kgqa.types import Json
from kgqa.viewer.questions import RunQuestions

DIFFERENCE = 2.0  # points, as in `kgqa compare`


def answers(runs: Sequence[RunQuestions], first: int, count: int) -> list[dict[str, Json]]:
    """Questions in the first run's order, each with what every run answered; None: the run does not have it.

    Raises:
        DataError: a trace is damaged.
    """
    shown = runs[0].page(first, count)
    others = [{row.id: row for row in run.some([each.id for each in shown])} for run in runs[1:]]
    return [
        {
            "id": row.id,
            "question": row.question,
            "gold": list(row.gold),
            "answers": [_answer(row), *(_answer(other.get(row.id)) for other in others)],
        }
        for row in shown
    ]


def figures(folders: Sequence[Path]) -> dict[str, Json]:
    """What `kgqa compare` says, without the flipped questions. Raises UsageError: the runs cannot be compared."""
    compared = compare_answers(ComparisonRequest(tuple(folders), None, 0, DIFFERENCE, in_all=True, flips=0))
    shown = [section for section in compared.sections if section.rows]
    return {
        "heading": compared.heading.splitlines()[0],
        "sections": [
            {
                "title": section.title,
                "header": list(section.header),
                "rows": [list(map(str, row)) for row in section.rows],
                "text": list(section.text),
            }
            for section in shown
        ],
    }


def _answer(row: QuestionRow | None) -> dict[str, Json] | None:
    return None if row is None else {"answer": row.answer, "error": row.error, "em": row.em, "f1": row.f1}
