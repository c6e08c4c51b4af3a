"""A run's questions for its page: rows some at a time, while the others are still read, and one with all its calls."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from kgqa.artefacts.predictions import PREDICTIONS, run_predictions
from kgqa.artefacts.run import FinishedRun
from kgqa.artefacts.trace import TRACE
from kgqa.artefacts.trace_places import placed_questions, question_at
from kgqa.artefacts.verdicts import VERDICTS, Judgements
from kgqa.errors import DataError, UsageError
from kgqa.report.html import question_trace
from kgqa.report.packing import Packing
from kgqa.report.questions import QuestionRow, reported_question, unread_row
from kgqa.types import Json

KEPT = 8  # runs whose rows stay in memory


class RunQuestions:
    """Of one run, as its files were when it was opened. A thread reads the trace once; nobody waits for all of it.

    Rows have the data file's order. Trace and predictions of a run that answered several at once differ a little in
    theirs, so the first rows are there long before the last ones are read.
    """

    def __init__(self, folder: Path) -> None:
        """Raises DataError: the folder is not one of a run that ended, or a file of it is damaged."""
        self.run = FinishedRun.read(folder)
        self._predictions = {each.question_id: each for each in run_predictions(folder)}
        self._judgements = Judgements(folder)
        self._ids = list(self._predictions)
        self._rows: dict[str, tuple[int, QuestionRow]] = {}
        self._more = threading.Condition()
        self._ended: UsageError | bool = False
        threading.Thread(target=self._read, name="kgqa view: questions", daemon=True).start()

    def __len__(self) -> int:
        return len(self._ids)

    def page(self, first: int, count: int) -> list[QuestionRow]:
        """Some of the rows. Raises DataError: the trace is damaged, or it lacks one of them."""
        return [self._placed(question_id)[1] for question_id in self._ids[first : first + count]]

    def some(self, question_ids: Sequence[str]) -> list[QuestionRow]:
        """Those of them that this run has. Raises DataError as `page`."""
        return [self._placed(question_id)[1] for question_id in question_ids if question_id in self._predictions]

    def question(self, question_id: str) -> dict[str, Json]:
        """`line`: what led to its answer, packed as in a file; `calls`: of its row what only its calls tell.

        Raises:
            DataError: no such question, or the trace is damaged.
        """
        if question_id not in self._predictions:
            raise DataError(f"{question_id}: no question of {self.run.folder}")
        traced = question_at(self.run.folder, self._placed(question_id)[0])
        reported = reported_question(self.run, traced, self._judgements)
        counted = {
            key: getattr(reported.row, key) for key in ("calls", "model_calls", "prompt_tokens", "output_tokens")
        }
        return {"line": Packing().pack(question_trace(reported)), "calls": counted}

    def _placed(self, question_id: str) -> tuple[int, QuestionRow]:
        """Waits until it is read."""
        with self._more:
            self._more.wait_for(lambda: question_id in self._rows or self._ended)
            if question_id in self._rows:
                return self._rows[question_id]
        if isinstance(self._ended, UsageError):
            raise self._ended
        raise DataError(f"{self.run.folder / TRACE}: no question {question_id}, which {PREDICTIONS} beside it has")

    def _read(self) -> None:
        ended: UsageError | bool = True
        try:
            for at, question in placed_questions(self.run.folder):
                if prediction := self._predictions.get(question.id):
                    row = unread_row(self.run, question, prediction, self._judgements.of(prediction))
                    with self._more:
                        self._rows[question.id] = (at, row)
                        self._more.notify_all()
        except UsageError as error:
            ended = error
        finally:
            with self._more:
                self._ended = ended
                self._more.notify_all()


class OpenedRuns:
    """The runs that were looked at last, each read again where its files have changed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opened: OrderedDict[tuple[Path, Sequence[int]], RunQuestions] = OrderedDict()

    def open(self, folder: Path) -> RunQuestions:
        """Raises DataError as `RunQuestions`."""
        key = (folder, tuple(_changed(folder / name) for name in (TRACE, PREDICTIONS, VERDICTS)))
        with self._lock:
            if key not in self._opened:
                self._opened[key] = RunQuestions(folder)
                while len(self._opened) > KEPT:
                    self._opened.popitem(last=False)
            self._opened.move_to_end(key)
            return self._opened[key]


def row_json(row: QuestionRow) -> dict[str, Json]:
    return {**asdict(row), "other": None}


def _changed(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0
