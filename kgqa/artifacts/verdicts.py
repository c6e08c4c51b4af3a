"""`verdicts.jsonl`: what a judge said of each answer, in the run's order."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from kgqa.artifacts.predictions import Prediction
from kgqa.artifacts.schema import Artifact, check_json, read_lines
from kgqa.errors import DataError

VERDICTS = "verdicts.jsonl"
RIGHT, WRONG = "correct", "incorrect"
UNSCORED = "unscored"  # shown in place of no verdict
Fate = Literal["judged", "exact", "failed"]


class StoredVote(Artifact):
    """The vote of one judge of a panel, or of the only judge."""

    verdict: str | None
    replies: tuple[str, ...]
    error: str | None


class Judgement(Artifact):
    """`verdict`: None is unscored, unless the question failed and so was never sent."""

    question_id: str
    verdict: str | None
    fate: Fate  # "exact": taken for correct without being sent
    answer: str | None = None  # the one that was judged
    votes: tuple[StoredVote, ...]
    error: str | None = None
    judge: str  # which it was, and with which models and prompts

    @property
    def share(self) -> float | None:
        """Return 1 for right and 0 for wrong. A failed question is wrong, an unscored one is None."""
        if self.fate == "failed":
            return 0.0
        return None if self.verdict is None else float(self.verdict == RIGHT)

    @property
    def label(self) -> str | None:
        """Return right or wrong for an answer that was sent. "Not attempted" is wrong."""
        if self.fate != "judged" or self.verdict is None:
            return None
        return RIGHT if self.verdict == RIGHT else WRONG

    @property
    def shown(self) -> str:
        return self.verdict or UNSCORED


def read_verdicts(folder: Path) -> dict[str, Judgement]:
    """Read the verdicts by question, in the file's order.

    Raises:
        DataError: there are none, or a line is not one of a judge's; the key is named.
    """
    file, remedy = folder / VERDICTS, f"judge the run again: kgqa evaluate {folder} judge=three_way"
    if not file.is_file():
        raise DataError(f"{folder}: no {VERDICTS}; judge it first: kgqa evaluate {folder} judge=three_way")
    lines = (check_json(Judgement, line, f"{place}: not a verdict", remedy) for place, line in read_lines(file, remedy))
    return {line.question_id: line for line in lines}


def judge_of(verdicts: Mapping[str, Judgement]) -> str:
    """Return the judge of these verdicts, or "" if there are none."""
    return next((line.judge for line in verdicts.values()), "")


class Judgements:
    """The verdicts of a run, which may be none."""

    def __init__(self, folder: Path) -> None:
        """Read the verdicts. Raises DataError as `read_verdicts`, but not if there are none."""
        self._lines = read_verdicts(folder) if (folder / VERDICTS).is_file() else {}

    def of(self, prediction: Prediction) -> Judgement | None:
        """Return the verdict on a prediction. None: not judged, failed, or judged with another answer."""
        line = self._lines.get(prediction.question_id)
        return None if line is None or line.fate == "failed" or line.answer != prediction.answer else line
