"""Inputs of a verification: lists of flagged questions, as SAFE's authors publish them, and the answers to look for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

from kgqa.artifacts.verification import MatchedLines, VerifiedQuestion
from kgqa.errors import ConfigError, DataError
from kgqa.types import Question

SHOWN = 5  # lines that match no question


def read_list(file: Path) -> list[str]:
    """Read the texts of a file, one question per line, with normal spaces and without empty lines.

    Raises:
        DataError: it cannot be read, is not text, or has no line.
    """
    try:
        lines = [_normalize(line) for line in file.read_text(encoding="utf-8-sig").split("\n")]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(
            f"verify.list={file}: {reason}; give a file of questions in UTF-8, one text per line"
        ) from error
    if not any(lines):
        raise DataError(f"verify.list={file}: the file is empty; give a file of questions, one text per line")
    return [line for line in lines if line]


def match_lines(file: Path, lines: Sequence[str], questions: Iterable[Question]) -> MatchedLines:
    """Count the lines that are questions of the dataset. Raises DataError: none of them is."""
    distinct = dict.fromkeys(lines)
    left = {*distinct}
    for question in questions:
        left.discard(_normalize(question.text))
    if len(left) == len(distinct):
        raise DataError(
            f"verify.list={file}: none of its {len(distinct):,} questions is in the dataset, the first is "
            f"{next(iter(distinct))!r:.80}; is it for another dataset= or dataset.split=?"
        )
    return MatchedLines(
        lines=len(lines),
        distinct=len(distinct),
        matched=len(distinct) - len(left),
        unmatched=len(left),
        examples=tuple(line for line in distinct if line in left)[:SHOWN],
    )


def verify_by_list(lines: Iterable[str], questions: Iterable[Question]) -> list[VerifiedQuestion]:
    """Return noise for the questions in the list, and valid for all others."""
    noise = {*lines}
    return [
        VerifiedQuestion(
            id=question.id, question=question.text, verdict="noise" if _normalize(question.text) in noise else "valid"
        )
        for question in questions
    ]


def choose_answers(questions: Sequence[Question], *, swapped: bool) -> dict[str, str]:
    """Return by question id the answer to look for: the first gold answer.

    swapped: use the answer of the next question that has a different one. The last question continues with the first.

    Raises:
        ConfigError: there is no different answer.
        DataError: a question has no answer, or no question names a gold passage.
    """
    for question in questions:
        if not question.answers:
            raise DataError(f"question {question.id}: it has no gold answer to verify; choose another dataset=")
    if not any(question.support for question in questions):
        raise DataError("no question names its gold passages, so they cannot be verified")
    if not swapped:
        return {question.id: question.answers[0] for question in questions}
    return {question.id: _other_answer(questions, place) for place, question in enumerate(questions)}


def _other_answer(questions: Sequence[Question], place: int) -> str:
    own = {_normalize(answer).casefold() for answer in questions[place].answers}
    for other in chain(range(place + 1, len(questions)), range(place)):
        if _normalize(answer := questions[other].answers[0]).casefold() not in own:
            return answer
    raise ConfigError(
        f"verify.swap_answers=true: no question has another answer than {questions[place].id}; use more of them"
    )


def _normalize(text: str) -> str:
    return " ".join(text.split())
