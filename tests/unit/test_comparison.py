"""Agreement, paired tests and intervals: against statsmodels 0.15.0 and SciPy, and 1,597 verdicts of GPT-4o."""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kgqa.artifacts.metrics import LabelAgreement
from kgqa.artifacts.predictions import Prediction
from kgqa.artifacts.verdicts import RIGHT, WRONG
from kgqa.experiment.compare import label_runs, name_runs
from kgqa.experiment.evaluate import AnsweredQuestions, label_by_scores
from kgqa.report.columns import Measured
from kgqa.report.evaluation import comparison_section, p_text
from kgqa.scoring.agreement import agreement, cohen_kappa
from kgqa.scoring.comparison import (
    CORRECTIONS,
    compare,
    holm,
    mcnemar,
    permutation,
    questions_needed,
)
from kgqa.scoring.intervals import estimate, percent
from kgqa.scoring.power import plan_questions
from kgqa.scoring.questions import score_question
from kgqa.types import Question
from kgqa.util.text import score_text

TRANSCRIPTS = Path(os.environ.get("KGQA_DATA", "")) / "field" / "search_agent_transcripts"


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        pytest.param([[20, 5], [10, 15]], 0.4, id="two labels"),
        pytest.param([[44, 5, 1], [7, 20, 3], [9, 5, 6]], 0.49152542372881347, id="three labels"),
        pytest.param([[0, 1], [1, 0]], -1.0, id="opposite"),
        pytest.param([[9]], None, id="one label"),
        pytest.param([], None, id="empty"),
    ],
)
def test_kappa_equals_statsmodels(table: list[list[int]], expected: float | None) -> None:
    pairs = [
        (row, column)
        for row, counts in enumerate(table)
        for column, n in enumerate(counts)
        for _ in range(n)
    ]
    assert cohen_kappa(pairs) == (
        expected if expected is None else pytest.approx(expected, abs=1e-12)
    )


def test_agreement_counts_missing_verdicts() -> None:
    measured = agreement(
        ["correct", None, "incorrect", "correct"], ["correct", "correct", None, "incorrect"]
    )
    confusion = {
        "correct": {"correct": 1, "incorrect": 1},
        "incorrect": {"correct": 0, "incorrect": 0},
    }
    assert measured == LabelAgreement(n=2, left_out=2, percent=50.0, kappa=0.0, confusion=confusion)
    nothing = agreement([None, None], ["correct", None])
    assert (nothing.n, nothing.percent, nothing.kappa, nothing.confusion) == (0, None, None, {})


@pytest.mark.parametrize(
    ("judge", "percent", "kappa", "confusion"),
    [("EM", 85.60, 0.701, (876, 229, 1, 491)), ("containment", 89.61, 0.774, (953, 152, 14, 478))],
    ids=["EM", "containment"],
)
def test_scores_agree_with_1597_verdicts_of_gpt_4o(
    judge: str, percent: float, kappa: float, confusion: tuple[int, ...]
) -> None:
    files = sorted(TRANSCRIPTS.glob("r1searcher_*.jsonl.gz"))
    if not files:
        pytest.skip("no search_agent_transcripts; set KGQA_DATA")
    rows = [
        json.loads(line)
        for file in files
        for line in gzip.decompress(file.read_bytes()).splitlines()
    ]
    verdicts = [RIGHT if str(row["gpt4o_output"]) == "True" else WRONG for row in rows]
    questions = [
        Question(str(place), row["question"], (row["answer"],)) for place, row in enumerate(rows)
    ]
    scored = [
        score_question(question, Prediction(question.id, row["pred_ans"]), "hotpotqa")
        for question, row in zip(questions, rows, strict=True)
    ]
    labels = label_by_scores(scored)
    result = agreement(verdicts, [labels[judge][question.id] for question in questions])
    assert result.percent == pytest.approx(percent, abs=0.005)
    assert (result.n, result.left_out) == (1597, 0)
    assert result.kappa == pytest.approx(kappa, abs=0.0005)
    assert (
        tuple(result.confusion[mine][other] for mine in (RIGHT, WRONG) for other in (RIGHT, WRONG))
        == confusion
    )


F1_LIKE = [0.0, 0.0, 0.0, 0.4, 0.5, 2 / 3, 1.0, 1.0]


@pytest.mark.parametrize(
    ("wins", "losses", "p"),
    [
        (10, 2, 0.03857421875),
        (5, 5, 1),
        (0, 7, 0.015625),
        (30, 12, 0.007915897334896727),
        (1, 0, 1),
        (0, 0, 1),
    ],
)
def test_mcnemar_equals_statsmodels(wins: int, losses: int, p: float) -> None:
    # statsmodels 0.15.0: stats.contingency_tables.mcnemar(exact=True)
    assert mcnemar(wins, losses) == pytest.approx(p, abs=1e-12)


@pytest.mark.parametrize(
    ("wins", "losses", "is_significant"),
    [pytest.param(11, 3, False, id="p 0.057"), pytest.param(12, 3, True, id="p 0.035")],
)
def test_difference_is_significant_below_5_percent(
    wins: int, losses: int, is_significant: bool
) -> None:
    first = [1.0] * wins + [0.0] * losses
    second = [0.0] * wins + [1.0] * losses
    difference = compare({"EM": {"A": first, "B": second}}, seed=0)[0]
    assert difference.significant is is_significant


def test_holm_equals_statsmodels() -> None:
    # stats.multitest.multipletests(method="holm")
    assert holm([0.01, 0.04, 0.03, 0.005, 0.2, 0.6]) == pytest.approx(
        [0.05, 0.12, 0.12, 0.03, 0.4, 0.6]
    )
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.parametrize(
    ("difference", "deviation", "count"),
    [(2, 30, 1766), (5, 40, 503), (1, 25, 4906), (-2, 30, 1766), (100, 1, 2)],
)
def test_power_equals_statsmodels(difference: float, deviation: float, count: int) -> None:
    # NormalIndPower(ddof=0).solve_power(ratio=0), ceiled
    assert questions_needed(difference, deviation) == count


def test_power_needs_a_difference_and_a_deviation() -> None:
    assert questions_needed(2.0, 0.0) is None
    with pytest.raises(ValueError, match="difference of 0"):
        questions_needed(0.0, 30.0)


@pytest.mark.parametrize("shift", [0.0, 0.05, 0.12])
def test_the_permutation_test_is_scipys(shift: float) -> None:
    # a second of every process if it is imported at the top
    from scipy.stats import permutation_test

    generator = np.random.default_rng(5)
    moved = [a - b + shift * (a > 0.6) for a, b in generator.choice(F1_LIKE, size=(80, 2))]
    reference = permutation_test(
        (moved,),
        np.mean,
        permutation_type="samples",
        n_resamples=9_999,
        rng=np.random.default_rng(2),
    ).pvalue
    # four standard errors at p = 1/2
    assert permutation(moved, seed=0) == pytest.approx(reference, abs=0.02)


@pytest.mark.parametrize(
    ("moved", "expected"),
    [
        pytest.param([0.0, 0.0], 1.0, id="no difference"),
        pytest.param([0.5, 0.2, 0.0], 2 / 4, id="2 : 0"),
        pytest.param([0.5, 0.5, 0.5, 0.0], 2 / 8, id="3 : 0, equal"),
        pytest.param([-0.1, -0.3, -1.0, -0.7, -0.4], 2 / 32, id="0 : 5"),
        # of 16 patterns, all of one sign and all but 0.1 have a sum of 1.4 or more
        pytest.param([1.0, 0.3, 0.2, -0.1], 4 / 16, id="3 : 1"),
        pytest.param([0.5] * 12, 2 / 4096, id="12 : 0"),
    ],
)
def test_few_differences_have_the_exact_p_value(moved: list[float], expected: float) -> None:
    assert permutation(moved, seed=0) == permutation(moved[::-1], seed=1) == expected


def test_many_differences_have_samples_of_signs() -> None:
    assert permutation([0.5] * 13 + [0.0], seed=0, resamples=500_000) == pytest.approx(
        2 / 2**13, abs=1e-4
    )
    moved = [0.5, -0.25, 1.0, 0.4, -0.1] * 5
    assert (
        permutation(moved, seed=1) == permutation(moved[::-1], seed=1) != permutation(moved, seed=2)
    )
    assert permutation([0.5] * 100, seed=0, resamples=999) == 1 / 1000


@pytest.mark.parametrize(
    ("baseline", "text"),
    [
        (None, "Difference: first run minus second run, in points, with its 95 % interval. Above 0: the first run"),
        ("B", "Difference: run minus golden, in points, with its 95 % interval. Above 0: the run"),
    ],
    ids=["pairs", "baseline"],
)  # fmt: skip
def test_sign_and_p_are_explained(baseline: str | None, text: str) -> None:
    names = {"A": "trace", "B": "golden"}
    texts = comparison_section([], 2.0, names, baseline=baseline).text
    assert [line for line in texts if line.startswith(text)]
    assert [line for line in texts if line.startswith("p (Holm): McNemar's exact test")]


@pytest.mark.parametrize(
    ("correction", "marked"), [("holm", ["A – C", "B – C"]), ("none", [])], ids=["holm", "none"]
)
def test_rows_of_the_other_family_are_marked(correction: str, marked: list[str]) -> None:
    shares = {name: [1.0, 0.0, number / 2] for number, name in enumerate("ABC")}
    differences = compare({"F1": shares}, seed=0, correction=correction, bounds={"C"})
    section = comparison_section(differences, 2.0, {name: name for name in shares}, correction)
    pairs = [row[1] for row in section.rows]
    assert [pair.removesuffix("†") for pair in pairs if pair.endswith("†")] == marked
    legend = "over 1 row without golden. †: 2 rows with golden, corrected on their own"
    assert any(legend in text for text in section.text) is bool(marked)


@pytest.mark.parametrize(("n", "is_uncertain"), [(12, True), (40, False)], ids=["few", "enough"])
def test_questions_needed_are_those_of_a_plan(n: int, is_uncertain: bool) -> None:
    # one question of all differs, by 10 points
    shares = {"A": [0.5] * n, "B": [0.6] + [0.5] * (n - 1)}
    differences = compare({"F1": shares}, seed=0)
    section = comparison_section(differences, 2.0, {"A": "trace", "B": "golden"})
    _, cautious = plan_questions(differences[0], 2.0)
    assert section.rows[0][-1] == str(cautious)
    assert any("very uncertain" in text for text in section.text) is is_uncertain


@pytest.mark.parametrize("metrics", [["EM"], ["EM", "F1"]], ids=["pairs", "pairs and metrics"])
def test_questions_of_several_tests_are_those_of_a_plan(metrics: list[str]) -> None:
    shares = {"A": [1.0] * 40, "B": [1.0, 0.0] * 20, "C": [0.0] * 40}
    differences = compare(dict.fromkeys(metrics, shares), seed=0)
    section = comparison_section(differences, 20.0, {name: name for name in shares})
    tests = 3 * len(metrics)
    planned = [plan_questions(each, 20.0, alpha=0.05 / tests)[1] for each in differences]
    assert any(f"at p < 0.05 divided by {tests} tests" in text for text in section.text)
    assert [row[-1] for row in section.rows] == list(map(str, planned))


@pytest.mark.parametrize(
    ("correction", "expected"),
    [
        ("holm", [0.03, 0.06, 0.06, 0.02]),
        # Benjamini and Hochberg, by hand: p * 4 / rank, the minimum from the largest on
        ("bh", [0.02, 0.04, 0.04, 0.02]),
        ("none", [0.01, 0.04, 0.03, 0.005]),
    ],
    ids=["holm", "bh", "none"],
)
def test_corrections_by_hand(correction: str, expected: list[float]) -> None:
    values = [0.01, 0.04, 0.03, 0.005]
    assert CORRECTIONS[correction](values) == pytest.approx(expected)


BOUNDED = {"A": [1.0] * 8 + [0.0] * 4, "B": [0.0] * 12, "C": [0.5] * 12}


def test_pairs_with_a_bound_are_their_own_family() -> None:
    differences = compare({"F1": BOUNDED}, seed=0, bounds={"C"})
    alone = compare({"F1": {name: BOUNDED[name] for name in "AB"}}, seed=0)
    assert differences[0].adjusted == alone[0].p
    with_bound = [each for each in differences if each.upper_bound]
    assert [(each.first, each.second) for each in with_bound] == [("A", "C"), ("B", "C")]
    assert [each.adjusted for each in with_bound] == holm([each.p for each in with_bound])
    # as in a comparison without upper bounds
    assert compare({"F1": BOUNDED}, seed=0)[0].adjusted > alone[0].p


@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        ({"C"}, "Holm's correction over 1 row without golden. †: 2 rows with golden"),
        ({"A", "B", "C"}, "Holm's correction over 3 rows"),
        (set(), "Holm's correction over 3 rows"),
    ],
    ids=["golden", "golden only", "no golden"],
)
def test_families_are_explained(bounds: set[str], text: str) -> None:
    differences = compare({"F1": BOUNDED}, seed=0, bounds=bounds)
    section = comparison_section(differences, 20.0, {name: name for name in BOUNDED})
    assert any(text in line for line in section.text)
    # questions for the tests of each family
    tests = {True: 2, False: 1} if len(bounds) == 1 else dict.fromkeys((True, False), 3)
    planned = [
        plan_questions(each, 20.0, alpha=0.05 / tests[each.upper_bound])[1] for each in differences
    ]
    assert [row[-1] for row in section.rows] == list(map(str, planned))


SINGLE, GRADED = {"A": [1.0, 0.0], "B": [0.0, 0.0]}, {"A": [1.0, 0.5], "B": [0.5, 0.0]}


@pytest.mark.parametrize(
    ("scores", "tests"),
    [
        ({"EM": SINGLE}, "p (Holm): McNemar's exact test, with"),
        ({"EM": GRADED}, "p (Holm): a paired permutation test, with"),
        (
            {"EM": SINGLE, "F1": GRADED},
            "p (Holm): McNemar's exact test for scores of right or wrong, otherwise a paired permutation test, with",
        ),
    ],
    ids=["right or wrong", "repeats", "both"],
)
def test_legend_names_the_tests_of_the_rows(
    scores: dict[str, dict[str, list[float]]], tests: str
) -> None:
    section = comparison_section(compare(scores, seed=0), 2.0, {"A": "trace", "B": "golden"})
    assert any(text.startswith(tests) for text in section.text)


def test_legend_names_the_test_with_the_spread_of_repeats() -> None:
    (difference,) = compare({"EM": GRADED}, seed=0)
    differences = [replace(difference, has_spread=True)]
    section = comparison_section(differences, 2.0, {"A": "trace", "B": "golden"})
    tests = "a paired permutation test, or Student's t with the spread between repeats if its p is larger, with"
    assert any(tests in text for text in section.text)


@pytest.mark.parametrize(
    ("p", "alpha", "text"),
    [
        (0.0501, 0.05, "0.0501"),
        (0.0499, 0.05, "0.0499"),
        (0.04996, 0.05, "0.04996"),
        (0.05, 0.05, "0.050"),
        (0.0501, 0.01, "0.050"),
        (0.0502, 0.1, "0.050"),
        (0.0099, 0.01, "0.0099"),
        (0.0004, 0.05, "<0.001"),
        (0.0004, 0.0005, "<0.0005"),
    ],
)
def test_p_shows_its_side_of_alpha(p: float, alpha: float, text: str) -> None:
    assert p_text(p, alpha) == text


def test_mean_is_rounded_as_in_the_reports_of_its_run() -> None:
    # 5.25 and 5.250000000000001, by the order of the sum
    shares = [0.4, 0.02] + [0.0] * 6
    differences = compare({"F1": {"A": shares, "B": [0.0] * 8}}, seed=0)
    assert differences[0].means[0] != percent(shares)
    section = comparison_section(differences, 2.0, {"A": "trace", "B": "golden"})
    mean, _ = section.rows[0][2].split()
    assert str(estimate(shares)).split()[0] == mean == "5.2"
    assert section.rows[0][3].split()[0] == "+5.2"


@pytest.mark.parametrize("value", [12.75, 12.749999999999998, 12.750000000000002])
def test_score_is_rounded_without_errors_of_sums(value: float) -> None:
    measured = Measured(value, low=value, high=value)
    assert (score_text(value), str(measured)) == ("12.8", "12.8 [12.8, 12.8]")


@pytest.mark.parametrize(
    ("value", "sign", "digits", "text"),
    [
        (-0.04, "", 1, "0.0"),
        (-0.04, "+", 1, "0.0"),
        (0.04, "+", 1, "0.0"),
        (-1e-12, "+", 1, "0.0"),
        (-0.06, "+", 1, "-0.1"),
        (0.06, "+", 1, "+0.1"),
        (-0.4, "+", 0, "0"),
        (-0.6, "+", 0, "-1"),
        (-0.004, "", 2, "0.00"),
    ],
)
def test_rounded_zero_has_no_sign(value: float, sign: str, digits: int, text: str) -> None:
    assert score_text(value, sign, digits) == text


def test_difference_near_zero_has_no_sign() -> None:
    shares = {"A": [0.5, 0.5, 0.5, 0.4], "B": [0.5, 0.5, 0.4, 0.501]}
    (difference,) = compare({"F1": shares}, seed=0)
    assert -0.05 < difference.difference < 0
    section = comparison_section([difference], 2.0, {"A": "trace", "B": "golden"})
    assert section.rows[0][3].startswith("0.0 [-")
    assert section.rows[0][8] == "d 0.00"


def test_comparison_shows_p_near_its_alpha() -> None:
    (difference,) = compare({"F1": GRADED}, seed=0)
    near = replace(difference, adjusted=0.0101, alpha=0.01)
    section = comparison_section([near], 1.0, {"A": "trace", "B": "golden"})
    assert section.rows[0][4] == "0.0101"
    assert any("questions that show 1 point with" in text for text in section.text)


@pytest.mark.parametrize(
    ("alpha", "is_significant"), [(0.05, True), (0.01, False)], ids=["5 %", "1 %"]
)
def test_alpha_decides_what_is_significant(alpha: float, is_significant: bool) -> None:
    shares = {"A": [1.0] * 6 + [0.0] * 4, "B": [0.0] * 10}
    (difference,) = compare({"EM": shares}, seed=0, alpha=alpha)
    # six wins of six: 2 / 64
    assert difference.p == pytest.approx(0.03125)
    assert difference.significant is is_significant


@pytest.mark.parametrize(
    ("lower_is_better", "winner", "wins", "odds"),
    [(set(), "A", "7 : 1", "odds 7.00"), ({"Errors"}, "B", "1 : 7", "odds 0.14")],
    ids=["higher", "lower"],
)
def test_direction_decides_who_wins(
    lower_is_better: set[str], winner: str, wins: str, odds: str
) -> None:
    shares = {"A": [1.0] * 7 + [0.0] * 3, "B": [0.0] * 7 + [1.0] + [0.0] * 2}
    (difference,) = compare({"Errors": shares}, seed=0, alpha=0.1, lower_is_better=lower_is_better)
    section = comparison_section([difference], 2.0, {"A": "A", "B": "B"})
    row = dict(zip(section.header, section.rows[0], strict=True))
    assert difference.difference == pytest.approx(60)
    assert (row["result"], row["better on"], row["effect"]) == (f"{winner} wins", wins, odds)


@pytest.mark.parametrize(
    ("changed", "points", "is_within"),
    [(0, 2, True), (0, 0.2, False), (20, 2, False)],
    ids=["equal", "narrow margin", "different"],
)
def test_equal_runs_are_within_a_margin(changed: int, points: float, is_within: bool) -> None:
    first = [1.0] * 500 + [0.0] * 500
    second = [1.0] * (500 - changed) + [0.0] * (500 + changed)
    (difference,) = compare({"EM": {"A": first, "B": second}}, seed=0)
    assert difference.is_within(points) is is_within


def test_all_pairs_of_runs_are_compared_and_corrected() -> None:
    right, wrong = [1.0] * 20, [0.0] * 20
    half = [1.0, 0.5] * 10
    comparisons = compare(
        {"EM": {"A": right, "B": wrong, "C": right}, "F1": {"A": right, "B": half, "C": half}},
        seed=0,
    )
    assert [(each.metric, each.first, each.second) for each in comparisons] == [
        (metric, *pair) for metric in ("EM", "F1") for pair in (("A", "B"), ("A", "C"), ("B", "C"))
    ]
    first = comparisons[0]
    assert (first.n, first.means, first.difference) == (20, (100.0, 0.0), 100.0)
    assert first.p == pytest.approx(2 / 2**20)
    assert (first.wins, first.binary) == ((20, 0), True)
    assert first.adjusted == pytest.approx(6 * first.p)
    assert first.significant
    assert first.effect is None  # B never wins: no odds
    assert [each.adjusted for each in comparisons] == holm([each.p for each in comparisons])
    em = compare({"EM": {"A": [1.0, 1.0, 1.0, 0.0], "B": [0.0, 0.0, 0.0, 1.0]}}, seed=0)[0]
    assert (em.binary, em.effect) == (True, 3.0)
    judged = compare({"judge": {"A": [1.0, None, 1.0, 0.0], "B": [0.0, 1.0, None, 0.0]}}, seed=0)
    # without a verdict on one side: left out
    assert [(each.n, each.wins) for each in judged] == [(2, (1, 0))]
    assert compare({"judge": {"A": [None], "B": [1.0]}}, seed=0) == []
    shares = compare({"F1": {"A": [0.5, 0.75, 1.0], "B": [0.0, 0.25, 0.75]}}, seed=0)[0]
    moved = np.array([50.0, 50.0, 25.0])
    assert shares.effect == pytest.approx(moved.mean() / moved.std(ddof=1))
    assert shares.deviation == pytest.approx(moved.std(ddof=1))


@pytest.mark.slow
@pytest.mark.parametrize("graded", [False, True], ids=["right or wrong", "F1"])
def test_equal_methods_are_rarely_different(graded: bool) -> None:
    """Holm's correction covers all pairs of three methods, which share the difficulty of the questions."""
    source, alarms, studies = np.random.default_rng(5), 0, 200
    for _ in range(studies):
        chances = source.beta(0.6, 0.8, 80)
        rights = source.random((3, 80)) < chances
        scores = np.where(
            rights, 1.0, source.choice([0.0, 0.25, 0.5], size=rights.shape) if graded else 0.0
        )
        runs = {name: row.tolist() for name, row in zip("ABC", scores, strict=True)}
        alarms += any(difference.significant for difference in compare({"score": runs}, seed=0))
    assert alarms / studies <= 0.06


def test_every_run_of_a_large_sweep_has_a_name() -> None:
    question = Question("q", "Who?", ("Ann",))
    runs = [
        [AnsweredQuestions(f"run {number}", (question,), {}, "musique")] for number in range(28)
    ]
    names = name_runs(runs, common=False)
    assert [names[letters][0].name for letters in ("A", "Z", "AA", "AB")] == [
        "run 0",
        "run 25",
        "run 26",
        "run 27",
    ]


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (["trace", "ircot"], ["trace", "ircot"]),
        (["trace · beam 5", "trace · beam 7"], ["beam 5", "beam 7"]),
        (["trace", "trace · beam 7"], ["trace", "trace · beam 7"]),
        (["trace", "trace"], ["A trace", "B trace"]),
    ],
    ids=["methods", "settings", "one without settings", "equal"],
)
def test_labels_are_short_and_unique(names: list[str], labels: list[str]) -> None:
    assert list(label_runs(dict(zip("AB", names, strict=True))).values()) == labels
