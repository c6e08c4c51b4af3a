"""Predictions to score: a run's own, plain JSONL, and the official files of HotpotQA, 2WikiMultiHopQA and MuSiQue.

Which of them a file is, is seen from its content.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from kgqa.artifacts.predictions import Prediction
from kgqa.datasets import contexts
from kgqa.errors import DataError
from kgqa.types import Json, Question
from kgqa.util import jsonio
from kgqa.util.jsonio import JsonError, decode_pairs

_OFFICIAL = re.compile(r'\s*\{\s*"(answer|sp|evidence)"\s*:\s*\{')
_ID_KEYS = ("question_id", "id", "_id")


def read_predictions(file: Path) -> list[Prediction]:
    """In the file's order.

    Raises:
        DataError: unreadable, in no known format, a value of the wrong type, or an id a second time.
    """
    if _OFFICIAL.match(jsonio.read_start(file, 200)):
        return _official(file)
    predictions: dict[str, tuple[str, Prediction]] = {}
    for where, record in jsonio.stream_records(file):
        prediction = _prediction(_object(record, where), where)
        if prediction.question_id in predictions:
            place = predictions[prediction.question_id][0]
            raise DataError(
                f"{where}: question {prediction.question_id} is already answered in {place}; remove one of them"
            )
        predictions[prediction.question_id] = where, prediction
    if not predictions:
        raise DataError(f"{file}: no predictions in this file")
    return [prediction for _, prediction in predictions.values()]


def match_predictions(
    predictions: Iterable[Prediction], questions: Sequence[Question], file: Path, *, known: Iterable[str]
) -> dict[str, Prediction]:
    """Return the predictions by question id.

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
    """Return `{"answer": {id: text}, "sp": {id: [[title, sentence], …]}}`; `evidence` (2Wiki) is left aside."""
    text = jsonio.read_start(file)
    try:
        whole = decode_pairs(text, _without_repeats)
    except _RepeatedError as error:
        raise DataError(f"{file}: question {error}: stands there twice; remove one of them") from None
    except JsonError as error:
        line = text.count("\n", 0, error.position) + 1
        raise DataError(f"{file}:{line}: not JSON: {error}; if the file is cut short, fetch it again") from None
    for key in ("answer", "sp"):
        if not isinstance(whole.get(key, {}), dict):
            raise DataError(f"{file}: {key}={shorten(whole[key])}: must be an object of question ids")
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
    """Yield each once, in order."""
    seen = set()
    for fact in facts if isinstance(facts, list) else [facts]:
        if not (isinstance(fact, list) and len(fact) == 2 and isinstance(fact[0], str) and is_whole(fact[1])):
            raise DataError(f"{where}={shorten(fact)}: must be a list of [title, sentence number]")
        if (title := contexts.plain(fact[0])) not in seen:
            seen.add(title)
            yield title


def _prediction(record: Mapping[str, Json], where: str) -> Prediction:
    key = next((key for key in _ID_KEYS if key in record), None)
    if key is None:
        raise DataError(f"{where}: no question id; expected one of the keys {', '.join(_ID_KEYS)}")
    question_id = record[key]
    if not isinstance(question_id, str) or not question_id:
        raise DataError(f"{where}: {key}={shorten(question_id)}: must be a string")
    if "predicted_answer" in record:
        places = record.get("predicted_support_idxs")
        if places is not None and not (isinstance(places, list) and all(map(is_whole, places))):
            raise DataError(f"{where}: predicted_support_idxs={shorten(places)}: must be a list of whole numbers")
        answer = _text(record["predicted_answer"], f"{where}: predicted_answer")
        return Prediction(question_id, answer, places=None if places is None else tuple(places))
    if "answer" not in record:
        raise DataError(f"{where}: no answer; expected the key answer, or predicted_answer as in MuSiQue's files")
    return Prediction.of_json(record, question_id, where)


def _object(value: Json, where: str) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise DataError(f"{where}: {shorten(value)}: must be an object of keys and values")
    return value


def _text(value: Json, where: str) -> str:
    if isinstance(value, str):
        return value
    raise DataError(f"{where}={shorten(value)}: must be a string")


class _RepeatedError(ValueError):
    """A key of a JSON object a second time."""


def _without_repeats(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    record = dict(pairs)
    if len(record) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _RepeatedError(next(key for key in keys if keys.count(key) > 1))
    return record


def _some(ids: Sequence[str], count: int = 3) -> str:
    more = f" and {len(ids) - count:,} more" if len(ids) > count else ""
    return f"question{'s' if len(ids) > 1 else ''} {', '.join(ids[:count])}{more}"


def is_whole(value: Json) -> bool:
    """Return whether a value is an integer."""
    return isinstance(value, int) and not isinstance(value, bool)


def shorten(value: Json) -> str:
    """Return a value's text for a message, at most 60 characters."""
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}…"
