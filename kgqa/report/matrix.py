"""Questions by cells of a sweep: which cell had which question right, wrong or failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kgqa.artifacts.predictions import question_ids, run_predictions
from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.trace import read_questions
from kgqa.report.splits import Shares
from kgqa.types import Json

RIGHT, WRONG, FAILED, UNSCORED = "rwf-"
CellOfRun = tuple[int, str, FinishedRun, Shares]  # number, name, its run, the EM of each question


@dataclass(frozen=True, slots=True)
class Matrix:
    """`questions`: id, text, and a letter for each cell: right (EM is 1), wrong, failed, or not scored."""

    cells: Sequence[tuple[int, str]]  # number, name
    questions: Sequence[tuple[str, str, str]]

    def json(self, links: Mapping[int, str]) -> Json:
        """Return the json with the address of each cell's report."""
        cells = [[number, name, links.get(number, "")] for number, name in self.cells]
        return {"cells": cells, "questions": [list(question) for question in self.questions]}


def matrix_of(cells: Sequence[CellOfRun]) -> Matrix:
    """Return the matrix of cells that answered the same questions, in the order of the data file."""
    first = cells[0][2].folder
    texts = {question.id: question.text for question in read_questions(first)}
    letters = [_letters(run, em) for _, _, run, em in cells]
    questions = [(id_, texts[id_], "".join(each[id_] for each in letters)) for id_ in question_ids(first)]
    return Matrix([(number, name) for number, name, _, _ in cells], questions)


def _letters(run: FinishedRun, em: Shares) -> dict[str, str]:
    answers = run.metrics.scores.em.n > 0
    return {
        prediction.question_id: FAILED
        if prediction.error is not None
        else _letter(em[prediction.question_id] if answers else None)
        for prediction in run_predictions(run.folder)
    }


def _letter(em: float | None) -> str:
    if em is None:
        return UNSCORED
    return RIGHT if em == 1 else WRONG
