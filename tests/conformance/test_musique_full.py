"""Scores of MuSiQue-Full beside those of its official evaluation, from prediction files in the official form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kgqa.datasets.musique import UNANSWERABLE
from kgqa.experiment.prediction_files import match_predictions, name_twins, read_predictions
from kgqa.scoring.questions import score_questions
from kgqa.scoring.summary import summarise
from kgqa.types import Passage, Question
from tests.conformance.support import FOLDER, needs_data

pytestmark = needs_data
FILE = FOLDER / "graphs" / "musique_full" / "official.jsonl"
ROWS = FILE.read_text("utf-8").splitlines() if FILE.is_file() else []
SCORES = {
    "answer_f1": "f1",
    "answer_em": "em",
    "group_answer_sufficiency_f1": "pair_f1",
    "group_support_sufficiency_f1": "pair_support_f1",
}


def question_of(gold: dict[str, Any]) -> Question:
    passages = tuple(Passage(f"{gold['id']} {place}", "T", str(place)) for place in range(20))
    fields: dict[str, Any] = {"text": "?", "passages": passages, "answerable": gold["answerable"]}
    if not gold["answerable"]:
        return Question(f"{gold['id']} {UNANSWERABLE}", answers=(UNANSWERABLE,), **fields)
    support = frozenset(passages[place].id for place in gold["support"])
    twin = f"{gold['id']} {UNANSWERABLE}"
    return Question(
        gold["id"], answers=tuple(gold["answers"]), support=support, twin=twin, **fields
    )


@pytest.mark.parametrize("number", range(len(ROWS)))
def test_official_files_have_their_official_scores(tmp_path: Path, number: int) -> None:
    row = json.loads(ROWS[number])
    questions = [question_of(gold) for gold in row["gold"]]
    file = tmp_path / "predictions.jsonl"
    lines = [
        {**predicted, "predicted_support_idxs": predicted["places"]}
        for predicted in row["predicted"]
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    ids = [question.id for question in questions]
    predictions = match_predictions(
        name_twins(read_predictions(file), ids, file), questions, file, known=ids
    )
    scores = summarise(score_questions(questions, predictions, "musique")).scores
    ours = {name: scores[score].mean for name, score in SCORES.items()}
    assert ours == pytest.approx({name: 100 * row["official"][name] for name in SCORES}, abs=0.051)
