"""`verdicts.jsonl`: a judge's verdicts on answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from kgqa.artifacts.predictions import Prediction
from kgqa.artifacts.schema import Artifact, check_json, read_lines
from kgqa.errors import DataError

VERDICTS = "verdicts.jsonl"
RIGHT, WRONG = "correct", "incorrect"
UNSCORED = "unscored"  # shown for no verdict
Fate = Literal["judged", "exact", "failed"]


class Vote(Artifact):
    """The vote of one judge of a panel, or of the only judge."""

    verdict: str | None
    # a second one if the first had no verdict
    replies: tuple[str, ...]
    error: str | None = None  # of a call that failed


class Judgement(Artifact):
    """`verdict`: None: unscored, or the question failed."""

    question_id: str
    verdict: str | None
    fate: Fate  # "exact": correct without being sent
    answer: str | None = None  # that was judged
    votes: tuple[Vote, ...]
    error: str | None = None
    # name, models, and hash of settings and prompts
    judge: str

    @property
    def share(self) -> float | None:
        """Return 1 for right and 0 for wrong. A failed question is wrong, an unscored one is None."""
        if self.fate == "failed":
            return 0.0
        return None if self.verdict is None else float(self.verdict == RIGHT)

    @property
    def label(self) -> str | None:
        """Return right or wrong, or None for an answer without a judge's verdict. "Not attempted" is wrong."""
        if self.fate != "judged" or self.verdict is None:
            return None
        return RIGHT if self.verdict == RIGHT else WRONG

    @property
    def shown(self) -> str:
        return self.verdict or UNSCORED


def list_verdicts(judgements: Iterable[Judgement]) -> dict[str, float | None]:
    """Return the share of each question by the judge. Without any verdict, also a failed question has none."""
    rows = list(judgements)
    has_verdicts = any(row.verdict is not None for row in rows)
    return {row.question_id: row.share if has_verdicts else None for row in rows}


def read_verdicts(folder: Path) -> dict[str, Judgement]:
    """Read the verdicts by question in the file's order. Raises DataError if there are none, or a line is damaged."""
    if not (folder / VERDICTS).is_file():
        raise DataError(f"{folder}: no {VERDICTS}. Judge the run first: {_write_command(folder)}")
    return {verdict.question_id: verdict for verdict in _iterate_verdicts(folder)}


def find_judge(folder: Path) -> str | None:
    """Return the identity of the judge of the verdicts in a folder, None without verdicts.

    Raises DataError: the first line is damaged.
    """
    if not (folder / VERDICTS).is_file():
        return None
    return next((verdict.judge for verdict in _iterate_verdicts(folder)), None)


def _iterate_verdicts(folder: Path) -> Iterator[Judgement]:
    remedy = f"Judge the run again: {_write_command(folder)}"
    for location, line in read_lines(folder / VERDICTS, remedy):
        yield check_json(Judgement, line, f"{location}: not a verdict", remedy)


def _write_command(folder: Path) -> str:
    return f"kgqa evaluate {folder} judge=three_way"


def judge_of(verdicts: Mapping[str, Judgement]) -> str:
    """Return the judge of these verdicts, or "" if there are none."""
    return next((line.judge for line in verdicts.values()), "")


class Judgements:
    """The verdicts of a run, if there are any."""

    def __init__(self, folder: Path) -> None:
        self._lines = read_verdicts(folder) if (folder / VERDICTS).is_file() else {}

    def of(self, prediction: Prediction) -> Judgement | None:
        """Return the verdict on a prediction. None: not judged, failed, or judged with a different answer."""
        line = self._lines.get(prediction.question_id)
        return (
            None
            if line is None or line.fate == "failed" or line.answer != prediction.answer
            else line
        )
