"""Predictions of others: each format is known by its content, and what is wrong is named with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.predictions import Prediction
from kgqa.errors import DataError
from kgqa.experiment.prediction_files import match_predictions, name_twins, read_predictions
from kgqa.types import Passage, Question
from tests.unit.files import jsonl, write

TOWN, BRIDGE = Passage.of("Pellery", "A town."), Passage.of("R&B Bridge", "A bridge.")
QUESTIONS = [
    Question(key, "Where?", ("Pellery",), (TOWN, BRIDGE), frozenset({TOWN.id}))
    for key in ("q1", "q2")
]
SP = {"q1": [["Pellery", 0], ["Pellery", 1], ["R&amp;B Bridge", 2]]}
OFFICIAL = {"answer": {"q1": "Pellery", "q2": ""}, "sp": SP}


def read(folder: Path, content: Any) -> list[Prediction]:
    return read_predictions(write(folder / "predictions.json", content))


@pytest.mark.parametrize(
    ("indent", "evidence"),
    [(None, {}), (2, {"evidence": {"q1": [["Pellery", "country", "Dorvany"]]}})],
    ids=["official", "indented, with evidence"],
)
def test_files_of_predictions_give_answers_and_titles(
    indent: int | None, evidence: dict[str, Any], tmp_path: Path
) -> None:
    first, second = read(tmp_path, json.dumps({**evidence, **OFFICIAL}, indent=indent))
    assert (first.question_id, first.answer, first.titles) == (
        "q1",
        "Pellery",
        ("Pellery", "R&B Bridge"),
    )
    assert (second.answer, second.titles, second.error) == ("", (), None)
    assert first.passages_of(QUESTIONS[0]) == (TOWN.id, BRIDGE.id)


def test_titles_of_predictions_name_passages(tmp_path: Path) -> None:
    (unknown,) = read(tmp_path, {"answer": {"q1": "Pellery"}, "sp": {}})
    assert unknown.passages_of(QUESTIONS[0]) is None
    (unlike,) = read(
        tmp_path, {"answer": {"q1": "x"}, "sp": {"q1": [["Elsewhere", 0], ["Pellery", 0]]}}
    )
    used = unlike.passages_of(QUESTIONS[0])
    assert used is not None
    # a title that no passage has counts
    assert len(used) == 2
    assert set(used) & {TOWN.id, BRIDGE.id} == {TOWN.id}
    record = {
        "id": "q1",
        "predicted_answer": "Pellery",
        "predicted_support_idxs": [1],
        "predicted_answerable": True,
    }
    (musique,) = read(tmp_path, jsonl(record))
    assert (musique.answer, musique.passages_of(QUESTIONS[0])) == ("Pellery", (BRIDGE.id,))
    first, second = read(
        tmp_path, jsonl({"id": "q1", "answer": "a"}, {"question_id": "q2", "answer": None})
    )
    assert (first.answer, first.error, first.passages_of(QUESTIONS[0])) == ("a", None, None)
    assert (second.answer, second.error) == (None, "no answer")
    file = write(tmp_path / "predictions.json.gz", b'\xef\xbb\xbf[{"_id": "q1", "answer": "a"}]')
    assert read_predictions(file) == [Prediction("q1", "a")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(
            jsonl({"id": "q1", "answer": "a"}, {"id": "q1", "answer": "b"}),
            r":2: question q1 is already answered above",
            id="answered twice",
        ),
        pytest.param(
            '{"id": "q1", "answer": NaN}\n', ":1: not JSON: NaN is not a JSON value", id="nan"
        ),
        pytest.param(
            '{"id": "q1", "answer": "a", "figures": {"x": 1e999}}',
            r":1: figures\.x=inf is not a finite number",
            id="infinite figure",
        ),
        pytest.param(
            '{"id": "q1", "answer": "a", "flags": {"x": "many"}}',
            r":1: flags\.x='many' is not a valid integer",
            id="text as flag",
        ),
        pytest.param(
            '{"id": "q1", "answer": "a", "context_tokens": 1e308}',
            r":1: context_tokens=1e\+308 is not a valid integer",
            id="huge number of tokens",
        ),
        pytest.param(
            jsonl({"id": 7, "answer": "a"}), ":1: id=7: must be a text", id="number as id"
        ),
        pytest.param(jsonl({"answer": "a"}), ":1: no question_id. Write one line per", id="no id"),
        pytest.param('{"q1": "a"}', '{"question_id": …, "answer": …}', id="mapping"),
        pytest.param(jsonl({"id": "q1"}), ":1: no answer", id="no answer"),
        pytest.param(jsonl(["q1", "a"]), "record 1: .*must be an object", id="list"),
        pytest.param(
            jsonl({"id": "q1", "predicted_answer": None}),
            ":1: predicted_answer=None: must be a text",
            id="null answer",
        ),
        pytest.param(
            '{"id": "q1", "predicted_answer": "a", "predicted_support_idxs": ["0"]}',
            r"idxs\.0='0': must be an integer",
            id="text as index",
        ),
        pytest.param(
            '{"answer": {"q1": "a"}, "sp": {"q1": [["T"]]}}',
            r"no key 'sp\.q1\.0\.1'",
            id="title without sentence",
        ),
        pytest.param(
            '{"answer": {"q1": "a"}, "sp": []}', r"sp=\[\]: must be a mapping", id="list of titles"
        ),
        pytest.param(
            '{"answer": {}}', "answer={}: dictionary should have at least 1 item", id="no answers"
        ),
        pytest.param('{"answer": {"q1": "a"', "not JSON", id="open object"),
        pytest.param(
            '{"id": "q1", "answer": "a"}\n{"id": "q2", "ans', ":2: not JSON", id="open line"
        ),
        pytest.param("[]", "no predictions", id="empty list"),
        pytest.param("", "empty", id="empty file"),
    ],
)
def test_invalid_predictions_are_one_line(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path, content)


def test_unknown_missing_and_impossible_are_named(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    with pytest.raises(DataError, match="questions q8, q9: no such question"):
        match_predictions(
            [Prediction("q9", "a"), Prediction("q8", "a")], QUESTIONS, file, known={"q1", "q2"}
        )
    with pytest.raises(DataError, match=r"no prediction for question q2. .*--subset"):
        match_predictions([Prediction("q1", "a")], QUESTIONS, file, known={"q1", "q2"})
    match_predictions([Prediction("q1", "a", places=(0, 1))], QUESTIONS[:1], file, known={"q1"})
    with pytest.raises(
        DataError, match="question q1: paragraph 2 of predicted_support_idxs is none of its 2"
    ):
        match_predictions([Prediction("q1", "a", places=(2,))], QUESTIONS[:1], file, known={"q1"})


def official_pair(first: bool, second: bool) -> str:
    record = {"id": "q1", "predicted_answer": "Pellery", "predicted_support_idxs": [1]}
    return jsonl(
        {**record, "predicted_answerable": first}, {**record, "predicted_answerable": second}
    )


@pytest.mark.parametrize(
    "ids", [["q1", "q1 unanswerable"], ["q1 unanswerable", "q1"]], ids=["as is", "reversed"]
)
def test_pairs_of_an_official_file_follow_the_dataset(tmp_path: Path, ids: list[str]) -> None:
    predictions = name_twins(read(tmp_path, official_pair(True, False)), ids, tmp_path)
    assert [prediction.question_id for prediction in predictions] == ids
    assert [prediction.answerable for prediction in predictions] == [True, False]
    assert {each.question_id: each.places for each in predictions} == {
        "q1": (1,),
        "q1 unanswerable": None,
    }


def test_pairs_need_a_dataset_of_pairs(tmp_path: Path) -> None:
    predictions = read(tmp_path, official_pair(True, False))
    with pytest.raises(DataError, match=r"q1 is answered twice.*dataset=musique_full"):
        name_twins(predictions, ["q1"], tmp_path)
    third = official_pair(True, False) + official_pair(True, False)
    with pytest.raises(DataError, match=r":3: question q1 is already answered"):
        read(tmp_path, third)
