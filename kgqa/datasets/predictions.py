"""Predictions to score: a run's own, plain JSONL, and the official files of HotpotQA, 2WikiMultiHopQA and MuSiQue.

Which of them a file is, is seen from its content.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kgqa import records
from kgqa.datasets import contexts
from kgqa.errors import DataError
from kgqa.types import Json, Question

_OFFICIAL = re.compile(r'\s*\{\s*"(answer|sp|evidence)"\s*:\s*\{')
_WHOLE = 1 << 40  # characters: more than any file has
_ID_KEYS = ("question_id", "id", "_id")


@dataclass(frozen=True, slots=True)
class Prediction:
    """What someone answered. The passages it rests on, in one of three ways or not at all (None)."""

    question_id: str
    answer: str | None  # None: failed, or not answered
    error: str | None = None
    evidence: tuple[str, ...] | None = None  # passage ids
    titles: tuple[str, ...] | None = None
    places: tuple[int, ...] | None = None  # among the question's passages, from 0
    context_tokens: int | None = None
    flags: Mapping[str, int] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)

    def passages_of(self, question: Question) -> tuple[str, ...] | None:
        """Ids of the passages used; None where the file does not say. A title no passage has stays in as it is."""
        if self.titles is not None:
            ids = {title: [p.id for p in question.passages if p.title == title] for title in self.titles}
            return tuple(each for title, found in ids.items() for each in found or [f"{title} is not given"])
        if self.places is not None:
            return tuple(question.passages[place].id for place in self.places)
        return self.evidence


def read_predictions(file: Path) -> list[Prediction]:
    """In the file's order.

    Raises:
        DataError: unreadable, in no known format, a value of the wrong type, or an id a second time.
    """
    if _OFFICIAL.match(records.head(file, 200)):
        return _official(file)
    found: dict[str, tuple[str, Prediction]] = {}
    for where, record in records.records(file):
        prediction = _prediction(_object(record, where), where)
        if prediction.question_id in found:
            place = found[prediction.question_id][0]
            raise DataError(
                f"{where}: question {prediction.question_id} is already answered in {place}; remove one of them"
            )
        found[prediction.question_id] = where, prediction
    if not found:
        raise DataError(f"{file}: no predictions in this file")
    return [prediction for _, prediction in found.values()]


def matched(
    predictions: Iterable[Prediction], questions: Sequence[Question], file: Path, *, known: Iterable[str]
) -> dict[str, Prediction]:
    """By question id.

    Raises:
        DataError: a prediction for a question that is not among `known`, or one of `questions` without a prediction.
    """
    by_id = {prediction.question_id: prediction for prediction in predictions}
    if unknown := sorted(by_id.keys() - set(known)):
        raise DataError(
            f"{file}: {_some(unknown)}: no such question in the data set; name the data set these predictions are for"
        )
    if missing := [question.id for question in questions if question.id not in by_id]:
        raise DataError(
            f"{file}: no prediction for {_some(missing)}; add them, or give --subset to score only what is answered"
        )
    for question in questions:
        beyond = [place for place in by_id[question.id].places or () if not 0 <= place < len(question.passages)]
        if beyond:
            raise DataError(
                f"{file}: question {question.id}: paragraph {beyond[0]} of predicted_support_idxs is none of its "
                f"{len(question.passages)} paragraphs"
            )
    return by_id


def _official(file: Path) -> list[Prediction]:
    """`{"answer": {id: text}, "sp": {id: [[title, sentence], …]}}`; `evidence` (2Wiki) is left aside."""
    try:
        whole = json.loads(records.head(file, _WHOLE).lstrip("\ufeff"), object_pairs_hook=_without_repeats)
    except _RepeatedError as error:
        raise DataError(f"{file}: question {error}: stands there twice; remove one of them") from None
    except json.JSONDecodeError as error:
        raise DataError(
            f"{file}:{error.lineno}: not JSON: {error.msg}; if the file is cut short, fetch it again"
        ) from None
    for key in ("answer", "sp"):
        if not isinstance(whole.get(key, {}), dict):
            raise DataError(f"{file}: {key}={_short(whole[key])}: must be an object of question ids")
    answers, facts = whole.get("answer", {}), whole.get("sp", {})
    if not answers:
        raise DataError(f'{file}: "answer" holds no predictions')
    if without := sorted(facts.keys() - answers.keys()):
        raise DataError(f"{file}: {_some(without)}: supporting facts in sp, but nothing in answer; add the answers")
    return [
        Prediction(
            question_id,
            _text(answer, f"{file}: question {question_id}: answer"),
            titles=tuple(_titles(facts.get(question_id, []), f"{file}: question {question_id}: sp")) if facts else None,
        )
        for question_id, answer in answers.items()
    ]


def _titles(facts: Json, where: str) -> Iterator[str]:
    """Each once, in order."""
    seen = set()
    for fact in facts if isinstance(facts, list) else [facts]:
        if not (isinstance(fact, list) and len(fact) == 2 and isinstance(fact[0], str) and _is_whole(fact[1])):
            raise DataError(f"{where}={_short(fact)}: must be a list of [title, sentence number]")
        if (title := contexts.plain(fact[0])) not in seen:
            seen.add(title)
            yield title


def _prediction(record: Mapping[str, Json], where: str) -> Prediction:
    key = next((key for key in _ID_KEYS if key in record), None)
    if key is None:
        raise DataError(f"{where}: no question id; expected one of the keys {', '.join(_ID_KEYS)}")
    question_id = record[key]
    if not isinstance(question_id, str) or not question_id:
        raise DataError(f"{where}: {key}={_short(question_id)}: must be a string")
    if "predicted_answer" in record:
        places = record.get("predicted_support_idxs")
        if places is not None and not (isinstance(places, list) and all(map(_is_whole, places))):
            raise DataError(f"{where}: predicted_support_idxs={_short(places)}: must be a list of whole numbers")
        answer = _text(record["predicted_answer"], f"{where}: predicted_answer")
        return Prediction(question_id, answer, places=None if places is None else tuple(places))
    if "answer" not in record:
        raise DataError(f"{where}: no answer; expected the key answer, or predicted_answer as in MuSiQue's files")
    return _own(question_id, record, where)


def _own(question_id: str, record: Mapping[str, Json], where: str) -> Prediction:
    """A line of a run's `predictions.jsonl`, or one with an id and an answer only."""
    answer, error = (_text(record.get(key), f"{where}: {key}", optional=True) for key in ("answer", "error"))
    evidence, tokens = record.get("evidence"), record.get("context_tokens")
    if evidence is not None and not (isinstance(evidence, list) and all(isinstance(each, str) for each in evidence)):
        raise DataError(f"{where}: evidence={_short(evidence)}: must be a list of passage ids")
    if tokens is not None and not _is_whole(tokens):
        raise DataError(f"{where}: context_tokens={_short(tokens)}: must be a whole number")
    return Prediction(
        question_id,
        answer,
        error or ("no answer" if answer is None else None),
        None if evidence is None else tuple(evidence),
        context_tokens=tokens,
        flags=_numbers(record, "flags", where),
        figures=_numbers(record, "figures", where),
    )


def _numbers(record: Mapping[str, Json], key: str, where: str) -> dict[str, Json]:
    values = _object(record.get(key, {}), f"{where}: {key}")
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise DataError(f"{where}: {key}.{name}={_short(value)}: must be a finite number")
    return values


def _object(value: Json, where: str) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise DataError(f"{where}: {_short(value)}: must be an object of keys and values")
    return value


def _text(value: Json, where: str, *, optional: bool = False) -> str | None:
    if isinstance(value, str) or (optional and value is None):
        return value
    raise DataError(f"{where}={_short(value)}: must be a string")


def _is_whole(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class _RepeatedError(ValueError):
    """A key of a JSON object a second time."""


def _without_repeats(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _RepeatedError(next(key for key in keys if keys.count(key) > 1))
    return found


def _some(ids: Sequence[str], count: int = 3) -> str:
    more = f" and {len(ids) - count:,} more" if len(ids) > count else ""
    return f"question{'s' if len(ids) > 1 else ''} {', '.join(ids[:count])}{more}"


def _short(value: Json) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}…"
