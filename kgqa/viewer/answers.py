"""The answers of runs question by question, read once and kept in memory while their files stay the same."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from string import ascii_uppercase

from kgqa.artifacts.predictions import PREDICTIONS
from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.trace import TRACE, read_question
from kgqa.artifacts.verdicts import VERDICTS, Judgements
from kgqa.errors import DataError
from kgqa.report.questions import QuestionRow, ReportedQuestion, index_questions, report_question
from kgqa.scoring.comparison import Difference, compare
from kgqa.viewer.folder import Row

MAX_RUNS = 8  # in memory


class Answers:
    """The questions of one run in the order of the data file, and where each one is in the trace."""

    def __init__(self, folder: Path) -> None:
        """Read a run. Raises DataError: the trace is damaged, or lacks a question of the predictions."""
        self._run, self._judgements = FinishedRun.read(folder), Judgements(folder)
        self.rows, self._offsets = index_questions(self._run, self._judgements)

    def question(self, question_id: str) -> ReportedQuestion:
        """Return one question with its calls. Raises DataError: the run does not have it."""
        if question_id not in self.rows:
            raise DataError(f"{question_id}: no such question in {self._run.folder}")
        traced = read_question(self._run.folder, self._offsets[question_id])
        return report_question(traced, self._run, self._judgements)


def read_answers(row: Row) -> Answers:
    files = [row.folder / name for name in (TRACE, PREDICTIONS, VERDICTS)]
    return _read(row.folder, tuple(file.stat().st_mtime_ns if file.is_file() else 0 for file in files))


@lru_cache(MAX_RUNS)
def _read(folder: Path, _: Sequence[int]) -> Answers:
    return Answers(folder)


Side = list[QuestionRow | None]  # one per run. None: the run does not have the question


FILTERS = ("all questions", "flipped")


def side_by_side(runs: Sequence[Row], which: str, text: str) -> list[Side]:
    """Return the questions of the first run that contain all words, with the answer of each run.

    which: "flipped" are the questions that some runs have right and others do not.
    """
    answers = [read_answers(run).rows for run in runs]
    words, sides = text.lower().split(), []
    for id_, first in answers[0].items():
        side = [rows.get(id_) for rows in answers]
        is_right = [row.is_right for row in side if row is not None]
        texts = [id_, first.question, *first.gold, *(row.answer or "" for row in side if row)]
        searched = "\n".join(texts).lower()
        if (which != "flipped" or len(set(is_right)) > 1) and all(word in searched for word in words):
            sides.append(side)
    return sides


def compare_scores(runs: Sequence[Row]) -> list[Difference]:
    """Return the paired tests of EM and F1 over the questions that all runs have. Runs are named by letters."""
    answers = [read_answers(run).rows for run in runs]
    ids = [id_ for id_ in answers[0] if all(id_ in rows for rows in answers)]
    scores: dict[str, dict[str, list[float | None]]] = {"EM": {}, "F1": {}}
    for letter, rows in zip(ascii_uppercase, answers, strict=False):
        for name in scores:
            values = [rows[id_].scores[name.lower()] for id_ in ids]
            scores[name][letter] = [None if value is None else value / 100 for value in values]
    return compare(scores, seed=0)
