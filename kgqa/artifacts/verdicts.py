"""`verdicts.jsonl`: a judge's verdicts on the answers of a run, or those of `kgqa data verify` on questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from kgqa.artifacts.metrics import Costs, Estimate
from kgqa.artifacts.predictions import Prediction
from kgqa.artifacts.schema import Artifact, Number, check_json, omit_none, read_lines
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
    lines = (
        check_json(Judgement, line, f"{location}: not a verdict", remedy) for location, line in read_lines(file, remedy)
    )
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


STAGE = "verify"
Validity = Literal["valid", "noise", "unverified"]
WrittenTriple = tuple[str, str, str]


class VerifiedQuestion(Artifact):
    """`unverified`: nothing could be read or asked, so neither valid nor noise.

    answer: the one that a path was looked for to. path: the triples it takes. graph: in which there was none, of a
    question that is not valid. figures: counts on the way. flags: oddities, counted.
    """

    id: str
    question: str
    verdict: Validity
    answer: str | None = None
    path: tuple[WrittenTriple, ...] = ()
    explanation: str = ""
    groups: tuple[tuple[str, ...], ...] = ()  # names of one thing, the one that was kept first
    graph: tuple[WrittenTriple, ...] = ()
    figures: Mapping[str, int] = {}
    flags: Mapping[str, int] = {}
    error: str | None = None

    @property
    def label(self) -> str | None:
        """Return the label for agreement, or None if nothing was decided."""
        return None if self.verdict == "unverified" else self.verdict


def read_verified(file: Path) -> Iterator[VerifiedQuestion]:
    """Yield the verified questions. Raises DataError if a line is none; the message names file, line and key."""
    return (
        check_json(VerifiedQuestion, line, f"{location}: no verdict on a question")
        for location, line in read_lines(file)
    )


class MatchedLines(Artifact):
    """Of a list of flagged questions: lines that are not empty, and of the distinct ones those that a question has."""

    lines: int
    distinct: int
    matched: int
    unmatched: int
    examples: tuple[str, ...]  # of those unmatched


class VerificationOutcome(Artifact):
    """Counts of questions. `noise_percent`: of all of them, as Table 2 has it; failed ones are `unverified`, too.

    by: the model and engine, or the list. figures: means over the questions that were asked about.
    """

    dataset: str
    split: str
    by: str
    swapped: bool
    questions: int
    valid: int
    noise: int
    unverified: int
    failed: int
    noise_percent: Estimate
    figures: Mapping[str, Number] = {}
    flags: Mapping[str, int] = {}
    listed: MatchedLines | None = omit_none()
    cost: Costs | None = omit_none()

    @property
    def name(self) -> str:
        """Return who verified."""
        return f"{self.by}, answers swapped" if self.swapped else self.by
