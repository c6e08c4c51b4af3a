"""Labels of answers: their file, whose answers they are of, and the calibrations that they give."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kgqa.artifacts.metrics import UNDEFINED
from kgqa.artifacts.predictions import Prediction
from kgqa.artifacts.verdicts import RIGHT, WRONG, Fate, Judgement
from kgqa.errors import DataError
from kgqa.experiment.calibration import (
    JudgedSet,
    calibrate,
    match_labels,
    read_labels,
    sample_sheet,
)
from kgqa.scoring.questions import ScoredQuestion, score_question
from kgqa.types import Question


def scored(*answers: str | None) -> list[ScoredQuestion]:
    """Return questions q0, q1, … with these answers and the gold answer "Oslo"."""
    return [
        score_question(
            Question(f"q{number}", "Where?", ("Oslo",)), Prediction(f"q{number}", answer), "2wiki"
        )
        for number, answer in enumerate(answers)
    ]


def verdict(row: ScoredQuestion, accepted: bool) -> Judgement:
    label = RIGHT if accepted else WRONG
    fate: Fate = "judged" if row.answer is not None else "failed"
    return Judgement(
        question_id=row.id, verdict=label, fate=fate, answer=row.answer, votes=(), judge="three_way"
    )


def write(folder: Path, text: str) -> Path:
    file = folder / "labels.csv"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,correct\na,1\n", ":1: expected the columns question_id and correct"),
        ("question_id,correct,correct\nq0,1,0\n", ":1: two columns correct. Remove one"),
        ("question_id,correct\nq0,maybe\n", ":2: correct=maybe: expected 1 or 0"),
        ("question_id,correct\nq0,\n", "no labels in this file"),
    ],
    ids=["column", "two columns", "value", "empty"],
)
def test_broken_file_of_labels_is_rejected(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_labels(write(tmp_path, text))


@pytest.mark.parametrize("text", ["{}", "question_id,correct\nq0,{}\n"], ids=["header", "value"])
def test_message_of_a_long_value_is_short(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError) as raised:
        read_labels(write(tmp_path, text.format("x" * 10_000)))
    assert len(str(raised.value)) < 500 + len(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("question_id,correct\nq0,1\n", "of which run is this label"),
        ("run,question_id,correct\nc,q0,1\n", "run=c: not among the judged runs"),
        ("run,question_id,correct\na\0b,q0,1\n", "not among the judged runs"),
        ("run,question_id,correct\na,q9,1\n", "question q9: not a question of a"),
        ("run,question_id,correct\na,q0,1\na,q0,1\n", ":3: question q0 occurs twice"),
        (
            "run,question_id,correct,answer\na,q0,1,Bergen\n",
            "the label is of the answer 'Bergen', and a answers 'Oslo'",
        ),
    ],
    ids=["no run", "other run", "null character", "other question", "repeated", "other answer"],
)
def test_label_of_no_answer_is_rejected(tmp_path: Path, text: str, message: str) -> None:
    answers = {"a": scored("Oslo"), "b": scored("Bergen")}
    with pytest.raises(DataError, match=message):
        match_labels(read_labels(write(tmp_path, text)), answers)


def test_sheet_has_the_same_questions_of_each_run() -> None:
    lines = sample_sheet(
        {"a": scored(*["Oslo"] * 50), "b": scored(*["Bergen"] * 50)}, 10, seed=3
    ).splitlines()[1:]
    ids = [line.split(",")[1] for line in lines]
    assert ids[:10] == ids[10:]
    assert len(set(ids)) == 10


def test_sheet_skips_failed_questions() -> None:
    assert len(sample_sheet({"a": scored("Oslo", None)}, 10, seed=0).splitlines()) == 2


def judged_set(accepted: Sequence[bool], labels: dict[str, bool], name: str = "a") -> JudgedSet:
    rows = scored(*("Oslo" if each else "a longer answer" for each in accepted))
    verdicts = {row.id: verdict(row, each) for row, each in zip(rows, accepted, strict=True)}
    return JudgedSet(name, rows, verdicts, labels)


def test_own_labels_correct_the_accuracy() -> None:
    # the judge accepts half of 80 answers, and half of the accepted ones are right
    labels = {f"q{number}": number % 4 == 0 for number in range(40)}
    (calibration,) = calibrate([judged_set([number % 2 == 0 for number in range(80)], labels)])
    assert calibration.accuracy.mean == 50
    assert calibration.corrected.mean == pytest.approx(25)
    assert (calibration.labels, calibration.source) == (40, "own")
    assert calibration.sensitivity.mean == 100
    assert calibration.specificity.mean == pytest.approx(100 * 20 / 30)
    assert calibration.warnings == ()


def test_other_runs_are_corrected_by_rates() -> None:
    accepted = [number % 2 == 0 for number in range(80)]
    labels = {f"q{number}": number % 4 == 0 for number in range(80)}
    first, second = calibrate([judged_set(accepted, labels), judged_set(accepted, {}, "b")])
    assert second.source == "other"
    assert second.corrected.mean == pytest.approx(first.corrected.mean or 0, abs=2)
    assert second.corrected.low is not None
    assert first.corrected.low is not None
    assert second.corrected.low < first.corrected.low


def test_selected_labels_cause_a_warning() -> None:
    labels = {f"q{number}": True for number in range(0, 80, 2)}
    (calibration,) = calibrate([judged_set([number % 2 == 0 for number in range(80)], labels)])
    assert any("no random sample" in warning for warning in calibration.warnings)


@pytest.mark.parametrize(("count", "is_warned"), [(19, True), (20, False)])
def test_fewer_than_20_labels_cause_a_warning(count: int, is_warned: bool) -> None:
    labels = {f"q{number}": number % 4 == 0 for number in range(count)}
    (calibration,) = calibrate([judged_set([number % 2 == 0 for number in range(80)], labels)])
    assert any("not reliable" in warning for warning in calibration.warnings) is is_warned


def test_answers_are_grouped_by_length() -> None:
    (calibration,) = calibrate([judged_set([True, False, False], {})])
    assert [(group.words, group.judge.mean, group.em.mean) for group in calibration.by_length] == [
        ("1 to 2", 100, 100),
        ("3 to 5", 0, 0),
    ]


@pytest.mark.parametrize(
    ("accepted", "labels"),
    [([True, False], {}), ([], {"q0": True})],
    ids=["no label", "no verdict"],
)
def test_accuracy_is_not_corrected_without_labels(
    accepted: list[bool], labels: dict[str, bool]
) -> None:
    (calibration,) = calibrate([judged_set(accepted, labels)])
    assert calibration.source is None
    assert (calibration.corrected.mean, calibration.sensitivity.mean) == (None, None)
    assert calibration.warnings == ()


def test_failed_question_alone_has_no_accuracy() -> None:
    rows = scored("Oslo", None)
    unscored = Judgement(question_id="q0", verdict=None, fate="judged", votes=(), judge="mine")
    failed = Judgement(question_id="q1", verdict=None, fate="failed", votes=(), judge="mine")
    (calibration,) = calibrate([JudgedSet("a", rows, {"q0": unscored, "q1": failed}, {})])
    assert calibration.accuracy == UNDEFINED
