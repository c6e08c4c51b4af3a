"""Read predictions to score: of a run, plain JSONL, and the official files of HotpotQA, 2WikiMultiHopQA and MuSiQue."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import AliasChoices, BaseModel, Field, StrictBool, StrictInt

from kgqa.artifacts.predictions import Prediction
from kgqa.datasets.musique import UNANSWERABLE
from kgqa.datasets.schema import parse_record, plain_title
from kgqa.errors import DataError
from kgqa.types import Json, Question
from kgqa.util import jsonio

OFFICIAL = re.compile(r'\s*\{\s*"(answer|sp|evidence)"\s*:\s*\{')
ID_KEYS = ("question_id", "id", "_id")
SHOWN = 3  # question ids in a message


class OfficialFile(BaseModel):
    """HotpotQA's form. 2Wiki adds `evidence`, which is ignored."""

    answer: Annotated[dict[str, str], Field(min_length=1)]
    # title and sentence of the supporting facts
    sp: dict[str, list[tuple[str, StrictInt]]] = {}


class PredictionLine(BaseModel):
    question_id: Annotated[str, Field(min_length=1, validation_alias=AliasChoices(*ID_KEYS))]


class MusiqueLine(PredictionLine):
    predicted_answer: str
    predicted_support_idxs: tuple[StrictInt, ...] | None = None
    predicted_answerable: StrictBool | None = None


def read_predictions(file: Path) -> list[Prediction]:
    """Return the predictions in the file's order.

    MuSiQue-Full's official files have each id twice, see `name_twins`.

    Raises:
        DataError: unreadable, in no known format, a value of the wrong type, or a repeated id.
    """
    if OFFICIAL.match(jsonio.read_start(file, 200)):
        record = parse_record(OfficialFile, jsonio.read_value(file), str(file))
        return [
            Prediction(question_id, answer, titles=_titles(record, question_id))
            for question_id, answer in record.answer.items()
        ]
    predictions, counts = list[Prediction](), Counter[str]()
    for where, record in jsonio.stream_records(file):
        prediction = _prediction(record, where)
        counts[prediction.question_id] += 1
        if counts[prediction.question_id] > (1 if prediction.answerable is None else 2):
            raise DataError(
                f"{where}: question {prediction.question_id} is already answered above. Remove one of them"
            )
        predictions.append(prediction)
    if not predictions:
        raise DataError(f"{file}: no predictions in this file")
    return predictions


def name_twins(
    predictions: Sequence[Prediction], question_ids: Iterable[str], file: Path
) -> list[Prediction]:
    """Give the predictions of a pair of MuSiQue-Full, which have the same id, the ids of its questions.

    known: the ids of the dataset in order. The first prediction is that of the first question, as in the official
    evaluation. Paragraphs of the unanswerable question are dropped: they have other numbers and are not scored.

    Raises DataError: the dataset does not have the question twice.
    """
    counts = Counter(prediction.question_id for prediction in predictions)
    if counts.total() == len(counts):
        return list(predictions)
    order: dict[str, list[str]] = {}
    for question_id in question_ids:
        order.setdefault(question_id.removesuffix(f" {UNANSWERABLE}"), []).append(question_id)
    named = []
    for prediction in predictions:
        if counts[prediction.question_id] == 1:
            named.append(prediction)
            continue
        if not (ids := order.get(prediction.question_id)):
            raise DataError(
                f"{file}: question {prediction.question_id} is answered twice, but the dataset does not have it twice. "
                "Set dataset=musique_full"
            )
        question_id = ids.pop(0)
        places = None if question_id.endswith(f" {UNANSWERABLE}") else prediction.places
        named.append(replace(prediction, question_id=question_id, places=places))
    return named


def _titles(record: OfficialFile, question_id: str) -> tuple[str, ...] | None:
    """Return the titles of the supporting facts, None if the file has none of any question."""
    titles = dict.fromkeys(plain_title(title) for title, _ in record.sp.get(question_id, ()))
    return tuple(titles) if record.sp else None


def _prediction(record: Json, where: str) -> Prediction:
    if isinstance(record, dict) and "predicted_answer" in record:
        line = parse_record(MusiqueLine, record, where)
        places, answerable = line.predicted_support_idxs, line.predicted_answerable
        return Prediction(
            line.question_id, line.predicted_answer, places=places, answerable=answerable
        )
    if isinstance(record, dict) and record.keys().isdisjoint(ID_KEYS):
        raise DataError(
            f'{where}: no question_id. Write one line per question: {{"question_id": …, "answer": …}}'
        )
    question_id = parse_record(PredictionLine, record, where).question_id
    if "answer" not in record:
        raise DataError(
            f"{where}: no answer. Expected the key answer, or predicted_answer as in MuSiQue's files"
        )
    return Prediction.of_json(record, question_id, where)


def match_predictions(
    predictions: Iterable[Prediction],
    questions: Sequence[Question],
    file: Path,
    *,
    known: Iterable[str],
) -> dict[str, Prediction]:
    """Return the predictions by question id.

    Raises:
        DataError: a prediction for a question that is not among `known`, one of `questions` without a prediction, or
            a paragraph that the question does not have.
    """
    by_id = {prediction.question_id: prediction for prediction in predictions}
    if unknown := sorted(by_id.keys() - set(known)):
        raise DataError(
            f"{file}: {_some(unknown)}: no such question in the dataset. Name the dataset of these predictions"
        )
    if missing := [question.id for question in questions if question.id not in by_id]:
        raise DataError(
            f"{file}: no prediction for {_some(missing)}. Add them, or use --subset to score only the "
            "answered questions"
        )
    for question in questions:
        count = len(question.passages)
        if beyond := [place for place in by_id[question.id].places or () if not 0 <= place < count]:
            raise DataError(
                f"{file}: question {question.id}: paragraph {beyond[0]} of predicted_support_idxs is none of its "
                f"{count} paragraphs"
            )
    return by_id


def _some(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - SHOWN:,} more" if len(ids) > SHOWN else ""
    return f"question{'s' if len(ids) > 1 else ''} {', '.join(ids[:SHOWN])}{more}"
