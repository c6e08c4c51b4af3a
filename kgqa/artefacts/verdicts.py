"""`verdicts.jsonl`: what a judge said of each answer, in the run's order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kgqa.artefacts.form import as_json, checked, read_lines
from kgqa.artefacts.predictions import Prediction
from kgqa.errors import DataError
from kgqa.types import Json

VERDICTS = "verdicts.jsonl"
RIGHT, WRONG = "correct", "incorrect"
UNSCORED = "unscored"  # shown in place of no verdict
Fate = Literal["judged", "exact", "failed"]


@dataclass(frozen=True, slots=True)
class KeptVote:
    """Of one judge of a panel, or of the only one."""

    verdict: str | None
    replies: tuple[str, ...]
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """`verdict`: None is unscored, unless the question failed and so was never sent."""

    question_id: str
    verdict: str | None
    fate: Fate  # "exact": taken for correct without being sent
    answer: str | None = None  # the one that was judged
    votes: tuple[KeptVote, ...]
    error: str | None = None
    judge: str  # which it was, and with which models and prompts

    @property
    def share(self) -> float | None:
        """1 right, 0 wrong; a failed question is wrong, an unscored one is neither."""
        if self.fate == "failed":
            return 0.0
        return None if self.verdict is None else float(self.verdict == RIGHT)

    @property
    def label(self) -> str | None:
        """Right or wrong, for what was sent: not attempted is wrong."""
        if self.fate != "judged" or self.verdict is None:
            return None
        return RIGHT if self.verdict == RIGHT else WRONG

    @property
    def shown(self) -> str:
        return self.verdict or UNSCORED

    def json(self) -> dict[str, Json]:
        line: dict[str, Json] = as_json(self)
        return line


def read_verdicts(folder: Path) -> dict[str, Judgement]:
    """By question, in the file's order.

    Raises:
        DataError: there are none, or a line is not one of a judge's; the key is named.
    """
    file, remedy = folder / VERDICTS, f"judge the run again: kgqa evaluate {folder} judge=three_way"
    if not file.is_file():
        raise DataError(f"{folder}: no {VERDICTS}; judge it first: kgqa evaluate {folder} judge=three_way")
    lines = (checked(Judgement, line, f"{place}: not a verdict", remedy) for place, line in read_lines(file, remedy))
    return {line.question_id: line for line in lines}


def judge_of(verdicts: Mapping[str, Judgement]) -> str:
    """Which judge gave them; "" where there are none."""
    return next((line.judge for line in verdicts.values()), "")


class Judgements:
    """Of a run that was judged or not."""

    def __init__(self, folder: Path) -> None:
        """Raises DataError as `read_verdicts`, but not where there are none."""
        self._lines = read_verdicts(folder) if (folder / VERDICTS).is_file() else {}

    def of(self, prediction: Prediction) -> Judgement | None:
        """None where nothing was judged, the question failed, or the judge saw another answer than there is now."""
        line = self._lines.get(prediction.question_id)
        return None if line is None or line.fate == "failed" or line.answer != prediction.answer else line
