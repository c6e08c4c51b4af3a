"""`verdicts.jsonl` of `kgqa data verify`, and what a verification came to: its outcome in `manifest.json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from kgqa.artifacts.metrics import Costs, Estimate
from kgqa.artifacts.schema import Artifact, Number, check_json, omit_none, read_lines

VERDICTS = "verdicts.jsonl"
STAGE = "verify"
Fate = Literal["valid", "noise", "unverified"]
FATES: tuple[Fate, ...] = ("valid", "noise", "unverified")
WrittenTriple = tuple[str, str, str]


class VerifiedQuestion(Artifact):
    """`unverified`: nothing could be read or asked, so neither valid nor noise.

    answer: the one that a path was looked for to. path: the triples it takes. graph: in which there was none, of a
    question that is not valid. figures: counts on the way. flags: oddities, counted.
    """

    id: str
    question: str
    verdict: Fate
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


def read_verdicts(file: Path) -> Iterator[VerifiedQuestion]:
    """In the file's order. Raises DataError: a line is none of `kgqa data verify`; file, line and key are named."""
    return (
        check_json(VerifiedQuestion, line, f"{place}: no verdict on a question") for place, line in read_lines(file)
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
