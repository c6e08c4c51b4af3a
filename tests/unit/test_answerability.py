"""MuSiQue-Full: pairs of answerable and unanswerable questions, and what a run's scores say about abstentions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.predictions import Prediction
from kgqa.artifacts.schema import validate
from kgqa.artifacts.trace import TracedQuestion
from kgqa.scoring.questions import score_questions
from kgqa.scoring.summary import summarise
from kgqa.types import Passage, Question
from tests.unit.question_files import built_dataset, lines, musique_record

UNANSWERABLE = musique_record(
    answerable=False,
    paragraphs=[{"idx": 0, "title": "T", "paragraph_text": "Three.", "is_supporting": True}],
)
ABSTAINED = "The passages do not mention it."


def read(folder: Path, **changes: object) -> list[Question]:
    file = lines(folder, musique_record(), UNANSWERABLE)
    return list(built_dataset("musique_full", file, **changes).questions())


def test_pairs_are_read_with_one_id_each(tmp_path: Path) -> None:
    answerable, unanswerable = read(tmp_path)
    assert (answerable.id, answerable.twin) == ("2hop__1_2", unanswerable.id)
    assert (answerable.answerable, unanswerable.answerable) == (True, False)
    assert (unanswerable.answers, unanswerable.type) == (("unanswerable",), "unanswerable")
    assert not unanswerable.support
    assert [passage.text for passage in unanswerable.passages] == ["Three."]
    (question,) = read(tmp_path, unanswerable=False)
    assert (question.answerable, question.twin) == (None, "")
    line = TracedQuestion(answerable, Prediction(answerable.id, "a"), ()).json()["question"]
    # scores are computed anew from the trace
    assert validate(Question, line).twin == unanswerable.id


def pairs(count: int) -> list[Question]:
    words: dict[str, Any] = {
        "text": "Who?",
        "passages": (Passage("a", "A", ""), Passage("b", "B", "")),
    }
    good: dict[str, Any] = {
        "answers": ("Ann Lund",),
        "support": frozenset({"a"}),
        "answerable": True,
    }
    bad: dict[str, Any] = {"answers": ("unanswerable",), "answerable": False}
    both = [
        (
            Question(f"q{number}", twin=f"u{number}", **good, **words),
            Question(f"u{number}", **bad, **words),
        )
        for number in range(count)
    ]
    return [question for pair in both for question in pair]


# answer to the answerable question, to its twin → F1 and support F1 of the pair
CASES: list[tuple[str | None, str | None, float, float]] = [
    ("Ann Lund", ABSTAINED, 1.0, 2 / 3),
    ("Lund", ABSTAINED, 2 / 3, 2 / 3),
    ("Bob", ABSTAINED, 0.0, 2 / 3),
    ("Ann Lund", "Ann Lund", 0.0, 0.0),  # the twin was answered
    (ABSTAINED, ABSTAINED, 0.0, 0.0),  # a false abstention
    # a failed question abstains from nothing
    ("Ann Lund", None, 0.0, 0.0),
    (None, ABSTAINED, 0.0, 0.0),
]


def test_pair_scores_need_both_questions_of_a_pair() -> None:
    questions = pairs(len(CASES))
    answers = [answer for case in CASES for answer in case[:2]]
    predictions = {
        question.id: Prediction(
            question.id, answer, evidence=("a", "b"), error=None if answer else "failed"
        )
        for question, answer in zip(questions, answers, strict=True)
    }
    rows = score_questions(questions, predictions, "musique")
    scores = summarise(rows).scores
    expected = {
        "pair_f1": sum(case[2] for case in CASES) / 7, "pair_support_f1": sum(case[3] for case in CASES) / 7,
        "answerability": 10 / 14, "correct_abstention": 5 / 7, "false_abstention": 1 / 7, "selective_em": 3 / 6,
        "em": 3 / 7, "f1": (1 + 2 / 3 + 0 + 1 + 0 + 1 + 0) / 7,
    }  # fmt: skip
    percentages = {name: 100 * value for name, value in expected.items()}
    assert {name: scores[name].mean for name in expected} == pytest.approx(percentages)
    assert (scores["pair_f1"].n, scores["em"].n, scores["answerability"].n) == (7, 7, 14)
    (question, _) = pairs(1)
    (row,) = score_questions([question], {"q0": Prediction("q0", "Ann Lund")}, "musique")
    assert "pair_f1" not in summarise([row]).scores
    (row,) = score_questions(
        [Question("q", "Who?", ("Ann",))], {"q": Prediction("q", ABSTAINED)}, "musique"
    )
    assert (
        not {"pair_f1", "answerability", "correct_abstention", "false_abstention"}
        & summarise([row]).scores.keys()
    )
