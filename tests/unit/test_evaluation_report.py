"""The report of `kgqa evaluate` over several sets of answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgqa.artifacts.evaluation import Calibration, Evaluation
from kgqa.artifacts.metrics import UNDEFINED, Estimate, Metrics
from kgqa.report.evaluation import evaluations_section

METRICS = Metrics.read(Path(__file__).parents[1] / "golden/artefacts/trace")


def estimate(mean: float | None) -> Estimate:
    return UNDEFINED if mean is None else Estimate(mean=mean, low=0.0, high=100.0, n=50)


def evaluation(
    name: str,
    em: float | None,
    accuracy: float | None,
    corrected: float | None,
    kappa: float | None,
) -> Evaluation:
    assert METRICS.judge is not None
    calibration = Calibration(
        answers=50,
        labels=20,
        source="own",
        accuracy=estimate(accuracy),
        corrected=estimate(corrected),
        sensitivity=estimate(90.0),
        specificity=estimate(80.0),
        kappa=kappa,
        kappa_low=0.25,
        kappa_high=0.954,
        more_labels=60,
    )
    judge = METRICS.judge.replace(judge="kgp", accuracy=estimate(accuracy))
    scores = METRICS.replace(scores={"em": estimate(em)})
    return Evaluation(source=name, scores=scores, notes=(), judge=judge, calibration=calibration)


GROUP = [
    evaluation("best", 40.0, 70.0, 50.0, 0.7),
    evaluation("equal", None, 70.0, 60.0, None),
    evaluation("worst", 50.0, 30.0, 40.0, 0.7),
]


def test_equal_means_share_a_rank() -> None:
    ranks = evaluations_section([GROUP])[-1]
    assert ranks.title == "Ranks under each judge"
    assert ranks.header == ("answers", "EM", "containment", "kgp", "corrected")
    assert [tuple(map(str, row)) for row in ranks.rows] == [
        ("best", "2. (40.0)", "–", "1. (70.0)", "2. (50.0)"),
        ("equal", "–", "–", "1. (70.0)", "1. (60.0)"),
        ("worst", "1. (50.0)", "–", "3. (30.0)", "3. (40.0)"),
    ]


def test_upper_bound_is_not_ranked() -> None:
    ranks = evaluations_section([GROUP], {"worst"})[-1]
    assert [tuple(map(str, row)) for row in ranks.rows] == [
        ("best", "1. (40.0)", "–", "1. (70.0)", "2. (50.0)"),
        ("equal", "–", "–", "1. (70.0)", "1. (60.0)"),
        ("worst", "(50.0)", "–", "(30.0)", "(40.0)"),
    ]
    assert "worst: an upper bound, and not ranked." in ranks.text


def test_overlapping_corrected_intervals_are_named() -> None:
    ends = {"low": (10.0, 40.0), "middle": (30.0, 60.0), "same": (30.0, 60.0), "high": (80.0, 90.0)}
    group = [
        each.replace(
            calibration=each.calibration.replace(
                corrected=Estimate(mean=sum(own) / 2, low=own[0], high=own[1], n=50)
            )
        )
        for name, own in ends.items()
        if (each := evaluation(name, 40.0, 70.0, 50.0, 0.7)).calibration
    ]
    overlap = (
        "corrected: the intervals of low, middle, same overlap, so that their order is uncertain."
    )
    assert overlap in evaluations_section([group])[-1].text
    assert "overlap" not in " ".join(evaluations_section([group], {"low"})[-1].text)
    assert "overlap" not in " ".join(evaluations_section([group[1:]])[-1].text)


def test_only_upper_bounds_are_ranked() -> None:
    ranks = evaluations_section([GROUP], {"best", "equal", "worst"})[-1]
    assert [row[3] for row in ranks.rows] == ["1. (70.0)", "1. (70.0)", "3. (30.0)"]


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (evaluation("silent", 20.0, None, None, None), "kgp: no accuracy of silent."),
        (evaluation("unlabeled", 20.0, 40.0, None, None), "corrected: no accuracy of unlabeled."),
    ],
    ids=["no verdicts", "no labels"],
)
def test_answers_without_a_verdict_are_named(changed: Evaluation, text: str) -> None:
    ranks = evaluations_section([[*GROUP, changed]])[-1]
    assert ranks.header == ("answers", "EM", "containment", "kgp", "corrected")
    assert text in ranks.text
    # the others are ranked
    assert ranks.rows[0][3:] == ("1. (70.0)", "2. (50.0)")


def test_own_judge_without_a_model_is_ranked() -> None:
    group = [
        each.replace(judge=each.judge.replace(judge="mine", models={}))
        for each in GROUP
        if each.judge
    ]
    assert "mine" in evaluations_section([group])[-1].header


def test_sets_of_other_questions_have_their_own_ranks() -> None:
    titles = [each.title for each in evaluations_section([GROUP[:2], GROUP[2:]])]
    assert titles.count("Ranks under each judge") == 1


def test_calibration_row_fits_its_header() -> None:
    section = evaluations_section([GROUP[:2]])[1]
    rows = [dict(zip(section.header, map(str, row), strict=True)) for row in section.rows]
    assert rows[0] == {
        "answers": "best",
        "judged": "50",
        "judge accuracy": "70.0  [0.0, 100.0]",
        "corrected": "50.0  [0.0, 100.0]",
        "labels": "20",
        "sensitivity": "90.0  [0.0, 100.0]",
        "specificity": "80.0  [0.0, 100.0]",
        "kappa": "0.70 [0.25, 0.95]",
        "labels to halve": "60",
    }
    assert rows[1]["kappa"] == "–"
