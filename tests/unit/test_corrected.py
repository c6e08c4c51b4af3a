"""Corrected accuracy, agreement and their intervals: by hand, and by coverage in simulated and recorded studies."""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import astuple
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from kgqa.artifacts.metrics import Estimate
from kgqa.scoring.agreement import agreement
from kgqa.scoring.corrected import (
    Table,
    correct_by_own_labels,
    correct_by_rates,
    has_unusual_labels,
    kappa_interval,
    labels_to_halve,
)
from kgqa.scoring.metrics import contains_gold, exact_match
from kgqa.scoring.published_delta import wilson_interval

TRANSCRIPTS = Path(os.environ.get("KGQA_DATA", "")) / "field" / "search_agent_transcripts"
STUDIES = 1000
# true accuracy, sensitivity, specificity
JUDGES = {
    "strict": (0.692, 0.8, 1.0),
    "good": (0.692, 0.97, 0.92),
    "lenient": (0.4, 0.95, 0.75),
    "weak": (0.4, 0.7, 0.7),
    "few right": (0.05, 0.9, 0.97),
    "few wrong": (0.95, 0.98, 0.7),
}


def cells_of(accuracy: float, sensitivity: float, specificity: float) -> list[float]:
    """Return the probabilities of a `Table`."""
    right, wrong = accuracy, 1 - accuracy
    return [
        right * sensitivity,
        wrong * (1 - specificity),
        right * (1 - sensitivity),
        wrong * specificity,
    ]


def includes(estimate: Estimate, value: float) -> bool:
    assert estimate.low is not None, estimate
    assert estimate.high is not None, estimate
    return estimate.low <= value <= estimate.high


def test_labels_are_counted_by_verdict() -> None:
    pairs = [(True, True)] * 4 + [(True, False)] * 3 + [(False, True)] * 2 + [(False, False)]
    assert Table.count(pairs) == Table(right_right=4, right_wrong=3, wrong_right=2, wrong_wrong=1)
    assert Table.count([]).total == 0


def test_estimate_weights_both_verdicts() -> None:
    # 3 of 4 accepted and 1 of 4 rejected answers are right, and the judge accepts 60 %
    estimate = correct_by_own_labels(60, 100, Table(3, 1, 1, 3))
    assert estimate.mean == pytest.approx(60 * 0.75 + 40 * 0.25)
    assert estimate.n == 100


def test_labels_of_all_answers_give_their_share() -> None:
    estimate = correct_by_own_labels(50, 100, Table(45, 5, 10, 40))
    assert estimate.mean == pytest.approx(55)
    low, high = wilson_interval(55, 100)
    assert estimate.low == pytest.approx(low, abs=0.5)
    assert estimate.high == pytest.approx(high, abs=0.5)


def test_failed_questions_are_wrong() -> None:
    estimate = correct_by_own_labels(60, 100, Table(30, 0, 0, 20), failed=100)
    assert estimate.mean == pytest.approx(30)
    assert estimate.n == 200


@pytest.mark.parametrize(
    ("failed", "low", "high"),
    [pytest.param(0, 44.22, 85.58, id="all answered"), pytest.param(25, 35.67, 70.20, id="failed")],
)
def test_interval_by_few_labels_is_of_the_posterior(failed: int, low: float, high: float) -> None:
    # 8 million samples of w * a + (1 - w) * r, with w, a and r of Beta(60.5, 40.5), (4.4, 0.4) and (1.4, 3.4),
    # times one of Beta(100.5, 25.5) with 25 failed questions. The ends are of the beta distribution with their moments.
    estimate = correct_by_own_labels(60, 100, Table(4, 0, 1, 3), failed)
    assert (estimate.low, estimate.high) == pytest.approx((low, high), abs=0.05)


@pytest.mark.parametrize(
    ("right", "judged", "labels", "expected"),
    [
        # (0.5 + 0.9 - 1) / (0.8 + 0.9 - 1)
        pytest.param(50, 100, Table(16, 2, 4, 18), 400 / 7, id="errs both ways"),
        # 3 of 80 accepted by a judge that finds 60 % of the right answers and accepts no wrong one
        pytest.param(3, 80, Table(12, 0, 8, 60), 6.25, id="accepts no wrong answer"),
        pytest.param(5, 100, Table(16, 2, 4, 18), 0.0, id="accepts less than of wrong answers"),
        pytest.param(70, 80, Table(12, 0, 8, 60), 100.0, id="accepts more than of right answers"),
    ],
)
@pytest.mark.parametrize("failed", [0, 20])
def test_rogan_gladen_by_hand(
    right: int, judged: int, labels: Table, expected: float, failed: int
) -> None:
    estimate = correct_by_rates(right, judged, labels, failed)
    answered = judged / (judged + failed)
    assert estimate.mean == pytest.approx(answered * expected)
    assert includes(estimate, estimate.mean or 0.0)


def test_interval_by_rates_is_lang_and_reiczigels() -> None:
    # the ends are written again from the formulas of their paper (2014), with labels of 40 right and 60 wrong answers
    estimate = correct_by_rates(120, 400, Table(36, 6, 4, 54))
    assert (estimate.mean, estimate.low, estimate.high) == pytest.approx(
        (100 * (0.3 - 0.1) / (0.9 - 0.1), 13.96440605, 34.32375663)
    )


@pytest.mark.parametrize("labels", [Table(10, 10, 10, 10), Table(10, 0, 5, 0), Table(2, 1, 1, 2)])
def test_judge_without_skill_corrects_no_score(labels: Table) -> None:
    assert correct_by_rates(50, 100, labels).mean is None


@pytest.mark.parametrize("labels", [Table(0, 0, 0, 0), Table(61, 0, 0, 0), Table(0, 0, 0, 41)])
def test_labels_must_be_of_judged_answers(labels: Table) -> None:
    with pytest.raises(ValueError, match="labels must be"):
        correct_by_own_labels(60, 100, labels)


@pytest.mark.slow
@pytest.mark.parametrize("name", JUDGES)
@pytest.mark.parametrize(("judged", "count"), [(400, 80), (400, 200), (1600, 80), (1600, 100)])
def test_interval_by_own_labels_covers(name: str, judged: int, count: int) -> None:
    accuracy = JUDGES[name][0]
    generator = np.random.default_rng(53)
    labeled = generator.multinomial(count, cells_of(*JUDGES[name]), size=STUDIES)
    others = generator.binomial(judged - count, sum(cells_of(*JUDGES[name])[:2]), size=STUDIES)
    covered = 0
    for row, accepted in zip(labeled, others, strict=True):
        table = Table(*map(int, row))
        estimate = correct_by_own_labels(
            int(accepted) + table.right_right + table.right_wrong, judged, table
        )
        covered += includes(estimate, 100 * accuracy)
    assert 0.93 <= covered / STUDIES <= 0.97


# near 0 and 100 % the interval ends there, so that it misses the truth on one side only
@pytest.mark.parametrize(
    ("name", "most"),
    [("strict", 0.985), ("good", 0.985), ("lenient", 0.985), ("few right", 1), ("few wrong", 1)],
)
@pytest.mark.parametrize("count", [80, 150])
def test_interval_by_rates_covers(name: str, count: int, most: float) -> None:
    accuracy = JUDGES[name][0]
    generator = np.random.default_rng(54)
    # of another set of answers
    labeled = generator.multinomial(count, cells_of(0.5, *JUDGES[name][1:]), size=STUDIES)
    accepted = generator.binomial(400, sum(cells_of(*JUDGES[name])[:2]), size=STUDIES)
    covered = 0
    for row, right in zip(labeled, accepted, strict=True):
        estimate = correct_by_rates(int(right), 400, Table(*map(int, row)))
        covered += includes(estimate, 100 * accuracy)
    assert 0.93 <= covered / STUDIES <= most


@pytest.mark.slow
@pytest.mark.parametrize("name", ["strict", "good", "lenient", "few right", "few wrong"])
def test_kappa_interval_covers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # a fifth of the samples moves the ends by less than a hundredth
    monkeypatch.setattr("kgqa.scoring.corrected._SAMPLES", 2_000)
    generator = np.random.default_rng(55)
    cells = cells_of(*JUDGES[name])
    accepted, right = cells[0] + cells[1], cells[0] + cells[2]
    expected = accepted * right + (1 - accepted) * (1 - right)
    true = (cells[0] + cells[3] - expected) / (1 - expected)
    covered, studies = 0, 0
    # equal tables have equal intervals
    rows, times = np.unique(
        generator.multinomial(80, cells, size=STUDIES), axis=0, return_counts=True
    )
    for row, count in zip(rows, times, strict=True):
        first = ["r"] * (row[0] + row[1]) + ["w"] * (row[2] + row[3])
        second = ["r"] * row[0] + ["w"] * row[1] + ["r"] * row[2] + ["w"] * row[3]
        if ends := kappa_interval(agreement(first, second)):
            covered, studies = covered + count * (ends[0] <= true <= ends[1]), studies + count
    assert 0.93 <= covered / studies <= 0.97


def test_kappa_interval_needs_a_kappa() -> None:
    assert kappa_interval(agreement([], [])) is None
    assert kappa_interval(agreement(["r", "r"], ["r", "r"])) is None


def test_width_halves_with_that_many_labels() -> None:
    table = Table(55, 5, 10, 30)
    more = labels_to_halve(6_000, 10_000, table)
    assert more is not None
    factor = (100 + more) / 100
    before = correct_by_own_labels(6_000, 10_000, table)
    after = correct_by_own_labels(
        6_000, 10_000, Table(*(round(factor * count) for count in astuple(table)))
    )
    assert before.low is not None
    assert before.high is not None
    assert after.low is not None
    assert after.high is not None
    assert (after.high - after.low) / (before.high - before.low) == pytest.approx(0.5, abs=0.03)


def test_no_number_of_labels_halves_a_small_study() -> None:
    assert labels_to_halve(60, 100, Table(25, 5, 5, 15)) is None


def test_labels_of_rejected_answers_only_are_unusual() -> None:
    assert has_unusual_labels(60, 100, Table(0, 0, 10, 20))
    assert not has_unusual_labels(60, 100, Table(15, 3, 2, 10))
    assert not has_unusual_labels(18, 30, Table(15, 3, 2, 10))  # all answers are labeled


@cache
def recorded_verdicts() -> np.ndarray:
    """Return EM, containment and GPT-4o's verdict on each of 1,597 recorded answers."""
    rows = []
    for file in sorted(TRANSCRIPTS.glob("r1searcher_*.jsonl.gz")):
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                answer, gold = row["pred_ans"].strip(), row["answer"]
                judged = (
                    exact_match(answer, gold),
                    contains_gold(answer, [gold]),
                    row["gpt4o_output"] == "True",
                )
                rows.append([float(each) for each in judged])
    return np.array(rows)


@pytest.mark.skipif(
    not TRANSCRIPTS.is_dir(), reason="needs KGQA_DATA with the recorded transcripts"
)
@pytest.mark.parametrize(("judge", "naive"), [(0, 0.0), (1, 0.1)], ids=["em", "containment"])
@pytest.mark.parametrize("count", [100, 200])
def test_corrected_interval_covers_recorded_verdicts(judge: int, naive: float, count: int) -> None:
    verdicts, generator = recorded_verdicts(), np.random.default_rng(56)
    truth, covered, by_judge = 100 * verdicts[:, 2].mean(), 0, 0
    studies = 4 * STUDIES
    for _ in range(studies):
        sample = verdicts[generator.integers(len(verdicts), size=400)]
        accepted, correct = sample[:count, judge] == 1, sample[:count, 2] == 1
        right = int(sample[:, judge].sum())
        labels = Table(
            int((accepted & correct).sum()),
            int((accepted & ~correct).sum()),
            int((~accepted & correct).sum()),
            int((~accepted & ~correct).sum()),
        )
        estimate = correct_by_own_labels(right, 400, labels)
        covered += includes(estimate, truth)
        low, high = wilson_interval(right / 4, 400)
        by_judge += low <= truth <= high
    assert 0.94 <= covered / studies <= 0.97
    assert by_judge / studies <= naive
