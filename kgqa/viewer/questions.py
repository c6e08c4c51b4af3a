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
STEP = 20  # questions after which those who wait look again


class RunQuestions:
    """Of one run, as its files were when it was opened. A thread reads the trace once; nobody waits for all of it.

    Rows have the data file's order. Trace and predictions of a run that answered several at once differ a little in
    theirs, so the first rows are there long before the last ones are read.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ids: list[str] | None = None  # not read yet
        self._rows: dict[str, tuple[int, QuestionRow]] = {}
        self._more = threading.Condition()
        self._ended: UsageError | bool = False
        threading.Thread(target=self._read, name="kgqa view: questions", daemon=True).start()

    def __len__(self) -> int:
        return len(self._known())

    def page(self, first: int, count: int) -> list[QuestionRow]:
        """Some of the rows. Raises DataError: the trace is damaged, or it lacks one of them."""
        return [self._placed(question_id)[1] for question_id in self._known()[first : first + count]]

    def some(self, question_ids: Sequence[str]) -> list[QuestionRow]:
        """Those of them that this run has. Raises DataError as `page`."""
        self._known()
        return [self._placed(question_id)[1] for question_id in question_ids if question_id in self._asked]

    def question(self, question_id: str) -> dict[str, Json]:
        """`line`: what led to its answer, packed as in a file; `calls`: of its row what only its calls tell.

        Raises:
            DataError: no such question, or the trace is damaged.
        """
        self._known()
        if question_id not in self._asked:
            raise DataError(f"{question_id}: no question of {self._folder}")
        traced = question_at(self._folder, self._placed(question_id)[0])
        reported = reported_question(self._run, traced, self._judgements)
        counted = {
            key: getattr(reported.row, key) for key in ("calls", "model_calls", "prompt_tokens", "output_tokens")
        }
        return {"line": Packing().pack(question_trace(reported)), "calls": counted}

    def _known(self) -> list[str]:
        """The ids in the data file's order; waits until they are read."""
        with self._more:
            self._more.wait_for(lambda: self._ids is not None or self._ended)
        if self._ids is None:
            assert isinstance(self._ended, UsageError)
            raise self._ended
        return self._ids

    def _placed(self, question_id: str) -> tuple[int, QuestionRow]:
        """Waits until it is read."""
        with self._more:
            self._more.wait_for(lambda: question_id in self._rows or self._ended)
            if question_id in self._rows:
                return self._rows[question_id]
        if isinstance(self._ended, UsageError):
            raise self._ended
        raise DataError(f"{self._folder / TRACE}: no question {question_id}, which {PREDICTIONS} beside it has")

    def _read(self) -> None:
        ended: UsageError | bool = True
        try:
            self._read_files()
            for number, (at, question) in enumerate(placed_questions(self._folder)):
                if prediction := self._asked.get(question.id):
                    judgement = self._judgements.of(prediction)
                    self._rows[question.id] = (at, unread_row(self._run, question, prediction, judgement))
                    if number % STEP == 0:
                        self._tell()
        except UsageError as error:
            ended = error
        finally:
            self._ended = ended
            self._tell()

    def _read_files(self) -> None:
        """All but the trace."""
        self._run = FinishedRun.read(self._folder)
        self._asked = {each.question_id: each for each in run_predictions(self._folder)}
        self._judgements = Judgements(self._folder)
        self._ids = list(self._asked)
        self._tell()

    def _tell(self) -> None:
        with self._more:
            self._more.notify_all()


class OpenedRuns:
    """The runs that were looked at last, each read again where its files have changed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opened: OrderedDict[tuple[Path, Sequence[int]], RunQuestions] = OrderedDict()

    def open(self, folder: Path) -> RunQuestions:
        """Nothing is read yet; what is wrong with it is raised by whoever asks for rows."""
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
