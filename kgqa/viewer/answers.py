"""The answers of runs question by question, read once and kept in memory while their files stay the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from string import ascii_uppercase

from kgqa.artifacts.predictions import PREDICTIONS, run_predictions
from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.trace import TRACE, read_offsets, read_question
from kgqa.artifacts.verdicts import VERDICTS, Judgements
from kgqa.errors import DataError
from kgqa.report.questions import QuestionRow, ReportedQuestion, build_row, load_reported_question
from kgqa.scoring.comparison import Difference, compare
from kgqa.viewer.folder import Row, modification_time

MAX_RUNS = 8  # in memory


class Answers:
    """The questions of one run in the order of the data file, and where each one is in the trace."""

    def __init__(self, folder: Path) -> None:
        """Read a run. Raises DataError: the trace is damaged, or lacks a question of the predictions."""
        self._run, self._judgements = FinishedRun.read(folder), Judgements(folder)
        predictions = {each.question_id: each for each in run_predictions(folder)}
        rows: dict[str, QuestionRow] = {}
        self._offsets: dict[str, int] = {}
        for offset, question in read_offsets(folder):
            if prediction := predictions.get(question.id):
                rows[question.id] = build_row(self._run, question, prediction, self._judgements.of(prediction))
                self._offsets[question.id] = offset
        if missing := predictions.keys() - rows.keys():
            raise DataError(f"{folder / TRACE}: no question {min(missing)}, which {PREDICTIONS} has")
        self.rows = {id_: rows[id_] for id_ in predictions}

    def question(self, question_id: str) -> ReportedQuestion:
        """Return one question with its calls. Raises DataError: the run does not have it."""
        if question_id not in self._offsets:
            raise DataError(f"{question_id}: no such question in {self._run.folder}")
        traced = read_question(self._run.folder, self._offsets[question_id])
        return load_reported_question(self._run, traced, self._judgements)


def read_answers(row: Row) -> Answers:
    return _read(row.folder, tuple(modification_time(row.folder / name) for name in (TRACE, PREDICTIONS, VERDICTS)))


@lru_cache(MAX_RUNS)
def _read(folder: Path, _: Sequence[int]) -> Answers:
    return Answers(folder)


Side = list[QuestionRow | None]  # one per run. None: the run does not have the question


def _is_flipped(side: Side) -> bool:
    is_right = [row.is_right for row in side if row is not None]
    return any(is_right) and not all(is_right)


FILTERS: dict[str, Callable[[Side], bool]] = {"all questions": lambda _: True, "flipped": _is_flipped}


def side_by_side(runs: Sequence[Row], which: str, text: str) -> list[Side]:
    """Return the questions of the first run that pass a filter and contain all words, with the answer of each run."""
    answers = [read_answers(run).rows for run in runs]
    words = text.lower().split()
    sides = [[rows.get(id_) for rows in answers] for id_ in answers[0]]
    passes = FILTERS.get(which, FILTERS["all questions"])
    return [side for side in sides if passes(side) and all(word in _text(side) for word in words)]


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


def _text(side: Side) -> str:
    first = side[0]
    assert first is not None
    texts = [first.question_id, first.question, *first.gold, *(row.answer or "" for row in side if row)]
    return "\n".join(texts).lower()
