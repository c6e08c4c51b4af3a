"""The answer that a path is looked for to: each question's gold answer, or for a check another question's."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from kgqa.errors import ConfigError, DataError
from kgqa.types import Question


def given_answers(questions: Sequence[Question], *, swapped: bool) -> dict[str, str]:
    """By question: its first gold answer, or that of the next question that has another one, after the last the first.

    Raises:
        ConfigError: there is no other answer to give.
        DataError: a question has no answer, or none of them names a gold passage.
    """
    known: list[tuple[str, tuple[str, ...]]] = []
    gold = False
    for question in questions:
        if not question.answers:
            raise DataError(f"question {question.id}: it has no gold answer to verify; choose another dataset=")
        known.append((question.id, question.answers))
        gold = gold or bool(question.support)
    if not gold:
        raise DataError("no question says which of its passages are gold, so there is nothing to verify them by")
    if not swapped:
        return {id_: answers[0] for id_, answers in known}
    return {id_: _another(known, place) for place, (id_, _) in enumerate(known)}


def _another(known: Sequence[tuple[str, tuple[str, ...]]], place: int) -> str:
    own = {_folded(answer) for answer in known[place][1]}
    for other in chain(range(place + 1, len(known)), range(place)):
        if _folded(answer := known[other][1][0]) not in own:
            return answer
    raise ConfigError(
        f"verify.swap_answers=true: no question has another answer than question {known[place][0]}; ask more of them"
    )


def _folded(answer: str) -> str:
    return " ".join(answer.split()).casefold()
