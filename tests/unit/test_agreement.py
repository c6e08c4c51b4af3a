"""Agreement of verdicts, against statsmodels' kappa (0.15.0, stats.inter_rater.cohens_kappa)."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from kgqa.artifacts.metrics import Agreement
from kgqa.artifacts.predictions import Prediction
from kgqa.artifacts.verdicts import RIGHT, WRONG
from kgqa.experiment.evaluate import label_by_scores
from kgqa.scoring.comparison import agreement, cohen_kappa
from kgqa.scoring.questions import score_question
from kgqa.types import Question

TRANSCRIPTS = Path(os.environ.get("KGQA_DATA", "")) / "field" / "search_agent_transcripts"


def pairs(table: list[list[int]]) -> list[tuple[int, int]]:
    return [
        (row, column) for row, counts in enumerate(table) for column, count in enumerate(counts) for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ([[20, 5], [10, 15]], 0.4),
        ([[45, 15], [25, 15]], 0.13043478260869554),
        ([[44, 5, 1], [7, 20, 3], [9, 5, 6]], 0.49152542372881347),
        ([[1, 0], [0, 1]], 1.0),
        ([[0, 1], [1, 0]], -1.0),
    ],
)
def test_kappa(table: list[list[int]], expected: float) -> None:
    assert cohen_kappa(pairs(table)) == pytest.approx(expected, abs=1e-12)


def test_one_label_only_has_no_kappa() -> None:
    assert cohen_kappa([("correct", "correct")] * 9) is None
    assert cohen_kappa([]) is None


def test_missing_verdicts_are_counted() -> None:
    measured = agreement(["correct", None, "incorrect", "correct"], ["correct", "correct", None, "incorrect"])
    confusion = {"correct": {"correct": 1, "incorrect": 1}, "incorrect": {"correct": 0, "incorrect": 0}}
    assert measured == Agreement(n=2, left_out=2, percent=50.0, kappa=0.0, confusion=confusion)
    nothing = agreement([None, None], ["correct", None])
    assert (nothing.n, nothing.percent, nothing.kappa, nothing.confusion) == (0, None, None, {})


@pytest.mark.parametrize(
    ("judge", "percent", "kappa", "confusion"),
    [("EM", 85.60, 0.701, (876, 229, 1, 491)), ("containment", 89.61, 0.774, (953, 152, 14, 478))],
)
def test_scores_agree_with_1597_verdicts_of_gpt_4o(
    judge: str, percent: float, kappa: float, confusion: tuple[int, ...]
) -> None:
    """R1-Searcher's released answers, labelled as `kgqa evaluate --calibrate` does."""
    files = sorted(TRANSCRIPTS.glob("r1searcher_*.jsonl.gz"))
    if not files:
        pytest.skip("no search_agent_transcripts; set KGQA_DATA")
    rows = [json.loads(line) for file in files for line in gzip.decompress(file.read_bytes()).splitlines()]
    verdicts = [RIGHT if str(row["gpt4o_output"]) == "True" else WRONG for row in rows]
    questions = [Question(str(place), row["question"], (row["answer"],)) for place, row in enumerate(rows)]
    scored = [
        score_question(question, Prediction(question.id, row["pred_ans"]), "hotpotqa")
        for question, row in zip(questions, rows, strict=True)
    ]
    labels = label_by_scores(scored)[judge]
    measured = agreement(verdicts, [labels[question.id] for question in questions])
    assert (measured.n, measured.left_out) == (1597, 0)
    assert measured.percent == pytest.approx(percent, abs=0.005)
    assert measured.kappa == pytest.approx(kappa, abs=0.0005)
    assert tuple(measured.confusion[mine][other] for mine in (RIGHT, WRONG) for other in (RIGHT, WRONG)) == confusion
