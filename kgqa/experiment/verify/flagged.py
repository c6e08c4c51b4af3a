"""Lists of flagged questions, a question's text a line: as SAFE's authors publish what their verification found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from kgqa.artefacts.verification import MatchedLines, VerifiedQuestion
from kgqa.errors import DataError
from kgqa.types import Question

SHOWN = 5  # of the lines that match no question


def read_list(file: Path) -> list[str]:
    """Its lines without blanks that say nothing; empty ones are left out.

    Raises:
        DataError: it cannot be read, is no text, or has no line.
    """
    try:
        lines = [_plain(line) for line in file.read_text(encoding="utf-8-sig").split("\n")]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"verify.list={file}: {reason}; give a file of questions in UTF-8, a text a line") from error
    if not any(lines):
        raise DataError(f"verify.list={file}: no line says anything; give a file of questions, a text a line")
    return [line for line in lines if line]


def matched_lines(file: Path, lines: Sequence[str], questions: Iterable[Question]) -> MatchedLines:
    """Which lines are texts of the data set's questions.

    Raises:
        DataError: none of them is.
    """
    distinct = dict.fromkeys(lines)
    left = set(distinct)
    for question in questions:
        left.discard(_plain(question.text))
    if len(left) == len(distinct):
        raise DataError(
            f"verify.list={file}: none of its {len(distinct):,} questions is in the data set, the first is "
            f"{next(iter(distinct))!r:.80}; is it of another dataset= or dataset.split=?"
        )
    examples = tuple(line for line in distinct if line in left)[:SHOWN]
    return MatchedLines(
        lines=len(lines),
        distinct=len(distinct),
        matched=len(distinct) - len(left),
        unmatched=len(left),
        examples=examples,
    )


def by_list(lines: Iterable[str], questions: Iterable[Question]) -> list[VerifiedQuestion]:
    """Noise is what the list has, all else is valid."""
    flagged = set(lines)
    return [
        VerifiedQuestion(
            id=question.id, question=question.text, verdict="noise" if _plain(question.text) in flagged else "valid"
        )
        for question in questions
    ]


def _plain(text: str) -> str:
    return " ".join(text.split())
