"""`verdicts.jsonl` of `kgqa verify`, and what a verification came to: its outcome in `manifest.json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kgqa.artefacts.form import LEFT_OUT, Number, as_json, checked, read_lines
from kgqa.artefacts.metrics import Costs, Estimate
from kgqa.types import Json

VERDICTS = "verdicts.jsonl"
STAGE = "verify"
Fate = Literal["valid", "noise", "unverified"]
FATES: tuple[Fate, ...] = ("valid", "noise", "unverified")
WrittenTriple = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedQuestion:
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
    figures: Mapping[str, int] = field(default_factory=dict)
    flags: Mapping[str, int] = field(default_factory=dict)
    error: str | None = None

    @property
    def label(self) -> str | None:
        """What agreement is asked of: None where nothing was decided."""
        return None if self.verdict == "unverified" else self.verdict

    def json(self) -> dict[str, Json]:
        line: dict[str, Json] = as_json(self)
        return line


def read_verdicts(file: Path) -> Iterator[VerifiedQuestion]:
    """In the file's order. Raises DataError: a line is none of `kgqa verify`; file, line and key are named."""
    return (checked(VerifiedQuestion, line, f"{place}: no verdict on a question") for place, line in read_lines(file))


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedLines:
    """Of a list of flagged questions: lines that are not empty, and of the distinct ones those that a question has."""

    lines: int
    distinct: int
    matched: int
    unmatched: int
    examples: tuple[str, ...]  # of those unmatched


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationOutcome:
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
    figures: Mapping[str, Number] = field(default_factory=dict)
    flags: Mapping[str, int] = field(default_factory=dict)
    listed: MatchedLines | None = field(default=None, metadata=LEFT_OUT)
    cost: Costs | None = field(default=None, metadata=LEFT_OUT)

    @property
    def name(self) -> str:
        """Who verified what."""
        return f"{self.by}, answers swapped" if self.swapped else self.by
