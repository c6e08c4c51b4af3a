"""The questions that a comparison needs, checked by simulated studies."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kgqa.artifacts.metrics import Metrics
from kgqa.experiment.plan import _add_costs
from kgqa.report.evaluation import comparison_section
from kgqa.scoring.comparison import Difference, RepeatSpread, compare, mcnemar
from kgqa.scoring.power import (
    find_detectable_points,
    mcnemar_power,
    plan_questions,
    repeat_power,
)
from kgqa.scoring.repeats import compare_rows

STUDIES = 1000


def pilot(discordant: float, n: int = 100) -> Difference:
    """Return the comparison of two equally good runs that differ on this share of right answers."""
    half = round(discordant * n / 2)
    first = [1.0] * half + [0.0] * half + [1.0] * (n - 2 * half)
    second = [0.0] * half + [1.0] * half + [1.0] * (n - 2 * half)
    return compare({"EM": {"A": first, "B": second}}, seed=0)[0]


def simulated_power(questions: int, discordant: float, difference: float) -> float:
    generator = np.random.default_rng(58)
    shares = [(discordant + difference) / 2, (discordant - difference) / 2, 1 - discordant]
    counts = generator.multinomial(questions, shares, size=STUDIES)
    # many studies have equal counts
    pairs, studies = np.unique(counts[:, :2], axis=0, return_counts=True)
    significant = [mcnemar(int(wins), int(losses)) < 0.05 for wins, losses in pairs]
    return float(studies[significant].sum()) / STUDIES


@pytest.mark.parametrize(
    ("questions", "discordant", "difference"), [(80, 0.3, 0.1), (400, 0.2, 0.05), (60, 0.5, 0.3)]
)
def test_power_is_that_of_simulated_studies(
    questions: int, discordant: float, difference: float
) -> None:
    expected = simulated_power(questions, discordant, difference)
    assert mcnemar_power(questions, discordant, difference) == pytest.approx(expected, abs=0.04)


@pytest.mark.parametrize("points", [5, 10, 20])
@pytest.mark.parametrize("discordant", [0.2, 0.4])
def test_planned_questions_show_the_difference(points: float, discordant: float) -> None:
    needed, cautious = plan_questions(pilot(discordant), points)
    assert needed is not None
    assert cautious is not None
    assert 0.76 <= simulated_power(needed, discordant, points / 100) <= 0.86
    assert cautious > needed


def test_equal_runs_are_rarely_different() -> None:
    assert mcnemar_power(200, 0.3, 0.0) <= 0.06


@pytest.mark.parametrize("discordant", [0.05, 0.2, 0.55])
@pytest.mark.parametrize("questions", [40, 160])
def test_shown_points_need_as_many_questions(questions: int, discordant: float) -> None:
    wins = round(200 * discordant)
    # the first is better on each question that differs
    first, second = [1.0] * 200, [0.0] * wins + [1.0] * (200 - wins)
    one_sided = compare({"EM": {"A": first, "B": second}}, seed=0)[0]
    points = find_detectable_points(one_sided, questions, alpha=0.05 / 3)
    assert points is not None
    shown = mcnemar_power(questions, max(discordant, points / 100), points / 100, 0.05 / 3)
    assert shown == pytest.approx(0.8, abs=1e-4)
    needed, _ = plan_questions(one_sided, points, alpha=0.05 / 3)
    assert needed == pytest.approx(questions, abs=2)


@pytest.mark.parametrize(("questions", "is_shown"), [(5, False), (6, True)])
def test_five_questions_show_no_difference(questions: int, is_shown: bool) -> None:
    # p of five wins of five is 2 / 32
    points = find_detectable_points(pilot(0.5), questions)
    assert points is not None
    assert math.isfinite(points) is is_shown


@pytest.mark.parametrize(("questions", "is_shown"), [(2, False), (8, True)])
def test_no_score_differs_by_more_than_100_points(questions: int, is_shown: bool) -> None:
    shares = {"A": [1.0, 0.0, 0.5, 1.0], "B": [0.0, 1.0, 0.5, 0.5]}
    graded = compare({"F1": shares}, seed=0)[0]
    points = find_detectable_points(graded, questions)
    assert points is not None
    assert (points <= 100, math.isfinite(points)) == (is_shown, is_shown)


def test_power_of_graded_scores_is_approximate() -> None:
    generator = np.random.default_rng(59)
    first, second = (list(map(float, generator.random(200))) for _ in range(2))
    measured = compare({"F1": {"A": first, "B": second}}, seed=0)[0]
    needed, _ = plan_questions(measured, 5)
    assert needed is not None
    assert find_detectable_points(measured, needed) == pytest.approx(5, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("n", [20, 40, 80])
@pytest.mark.parametrize("discordant", [0.02, 0.05, 0.15, 0.3, 0.5])
def test_cautious_number_is_mostly_enough(n: int, discordant: float) -> None:
    sampled = np.random.default_rng(60).binomial(n, discordant, size=STUDIES)
    true, enough = plan_questions(pilot(discordant, n=2000), 20)[0] or 0, 0
    for count, times in zip(*np.unique(sampled, return_counts=True), strict=True):
        first, second = [1.0] * n, [1.0] * (n - count) + [0.0] * count
        small = compare({"EM": {"A": first, "B": second}}, seed=0)[0]
        enough += times * ((plan_questions(small, 20)[1] or 0) >= true)
    assert enough / STUDIES >= 0.78


@pytest.mark.parametrize("shares", [[1.0, 0.0], [0.5, 0.25]], ids=["EM", "F1"])
def test_pilot_without_differences_gives_a_cautious_number(shares: list[float]) -> None:
    same = compare({"score": {"A": shares * 10, "B": shares * 10}}, seed=0)[0]
    needed, cautious = plan_questions(same, 5)
    assert needed is None
    assert cautious is not None
    assert cautious > 150
    assert find_detectable_points(same, 20) is None


def test_limit_of_no_difference_is_20_percent() -> None:
    # 20 equal questions: with a share of 1 - 0.2 ** (1 / 20), one pilot in five has no difference
    share = 1 - 0.2 ** (1 / 20)
    same = compare({"EM": {"A": [1.0, 0.0] * 10, "B": [1.0, 0.0] * 10}}, seed=0)[0]
    _, cautious = plan_questions(same, 5)
    assert cautious is not None
    assert mcnemar_power(cautious, share, 0.05) == pytest.approx(0.8, abs=0.005)


def repeated_pilot(shifts: tuple[float, ...], n: int = 200) -> Difference:
    """Return the comparison of two methods with three repeats each, those of the first one shifted by these shares."""
    generator = np.random.default_rng(61)
    shares = generator.uniform(0.2, 0.6, size=n)
    noise = generator.normal(0, 0.1, size=(6, n))
    rows = [shares + each for each in noise]
    first = [list(map(float, row + shift)) for row, shift in zip(rows[:3], shifts, strict=True)]
    second = [list(map(float, row)) for row in rows[3:]]
    return compare_rows({"F1": {"A": first, "B": second}}, 0)[0]


def test_pilot_shows_about_what_its_interval_shows() -> None:
    compared = repeated_pilot((-0.1, 0.0, 0.1))
    # without power, a difference is shown if the interval is above 0
    shown = find_detectable_points(compared, compared.n, power=0.5)
    assert shown == pytest.approx((compared.high - compared.low) / 2, rel=0.25)
    alone = replace(compared, repeats=())
    assert find_detectable_points(alone, compared.n, power=0.5) == pytest.approx(1.1, abs=0.2)


def test_no_number_of_questions_shows_less_than_repeats_differ() -> None:
    compared = repeated_pilot((-0.015, 0.0, 0.015))
    smallest = find_detectable_points(compared, 10**6)
    assert smallest is not None
    assert plan_questions(compared, smallest * 0.95) == (None, None)
    points = smallest * 1.5
    needed, cautious = plan_questions(compared, points)
    assert needed is not None
    assert cautious is not None
    assert (find_detectable_points(compared, needed) or 0) <= points
    assert (find_detectable_points(compared, needed - 1) or 0) > points
    assert cautious >= needed


def test_repeats_that_differ_by_chance_have_a_plan() -> None:
    compared = repeated_pilot((-0.006, 0.0, 0.006))
    # the interval contains the spread, which an F test does not show
    assert compared.has_spread
    needed, cautious = plan_questions(compared, 0.1)
    assert needed is not None
    assert cautious is not None


def test_comparison_counts_questions_as_the_plan() -> None:
    # a higher spread of questions alone would need fewer, because the spread between two repeats is known better
    generator = np.random.default_rng(2)
    rows = {
        name: [list(map(float, generator.uniform(0, 1, 30))) for _ in range(2)] for name in "AB"
    }
    compared = compare_rows({"F1": rows}, 0)[0]
    needed, cautious = plan_questions(compared, 2)
    assert needed == cautious
    section = comparison_section([compared], 2, {"A": "a", "B": "b"}, questions=30)
    assert section.rows[0][-1] == f"{cautious:,}"


def test_equal_repeats_need_no_more_questions() -> None:
    # all of them have the same answers, and the graded score of every second question differs
    rows = {"A": [[0.5, 0.5, 0.25, 0.5] * 10] * 3, "B": [[0.5, 0.25, 0.5, 0.5] * 10] * 3}
    thrice = compare_rows({"F1": rows}, 0)[0]
    single = compare_rows({"F1": {name: runs[:1] for name, runs in rows.items()}}, 0)[0]
    assert plan_questions(thrice, 5) == plan_questions(single, 5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runs", "between"),
    [
        pytest.param(3, 0.0, id="equal runs"),
        pytest.param(5, 0.0, id="five equal runs"),
        pytest.param(3, 0.005, id="half a point"),
        pytest.param(5, 0.01, id="five runs, 1 point"),
    ],
)
def test_power_of_repeats_is_that_of_their_test(runs: int, between: float) -> None:
    """A question has a normal share of points, a run a normal shift of all of them."""
    generator = np.random.default_rng(runs)
    n, of_questions, noise, points = 100, 0.05, 0.1, 0.04
    deviation = math.sqrt(2 * of_questions**2 + 2 * noise**2 / runs)
    spread = RepeatSpread(runs, noise**2 / runs, between**2 / runs)
    power = repeat_power(n, 100 * points, 100 * deviation, (spread, spread))
    studies, wins = 400, 0
    for _ in range(studies):
        first, second = (
            generator.normal(0.5, of_questions, n)
            + generator.normal(0, noise, (runs, n))
            + generator.normal(0, between, (runs, 1))
            for _ in range(2)
        )
        scores = {"A": (first + points).clip(0, 1).tolist(), "B": second.clip(0, 1).tolist()}
        wins += compare_rows({"F1": scores}, 0)[0].p < 0.05
    # three standard errors of a share of 400 are at most 0.075
    assert wins / studies == pytest.approx(power, abs=0.075)
    assert 0.4 < power < 0.99


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # all differ by 10 points: deviation 10.26, 12.08 with the 20 % quantile of chi-squared, 13.72
        pytest.param([0.5, 0.6, 0.4, 0.7] * 5, [0.4, 0.7, 0.5, 0.6] * 5, (34, 46), id="all"),
        # 50 and 100 points: at most 20.2 % differ with 80 % probability, so the deviation is 34.7
        pytest.param([0.5] * 18 + [1.0] * 2, [0.5] * 19 + [0.0], (188, 379), id="two of 20"),
    ],
)
def test_graded_pilot_plans_by_its_deviation(
    first: list[float], second: list[float], expected: tuple[int, int]
) -> None:
    graded = compare({"F1": {"A": first, "B": second}}, seed=0)[0]
    assert plan_questions(graded, 5) == expected


@pytest.mark.parametrize(
    ("dollars", "expected"),
    [
        pytest.param((0.5, 0.25), 10.0, id="both have prices"),
        pytest.param((0.5, None), None, id="one has no price"),
    ],
)
def test_plan_adds_the_costs_of_both_runs(
    dollars: tuple[float, float | None], expected: float | None
) -> None:
    # 2 questions of the first pilot and 1 of the second one
    run = Metrics.read(Path(__file__).parents[1] / "golden/artefacts/trace")
    pair = []
    for questions, tokens, usd in ((2, 300, dollars[0]), (1, 100, dollars[1])):
        cost = run.cost.method.replace(prompt_tokens=tokens, output_tokens=10, seconds=30, usd=usd)
        pair.append(run.replace(questions=questions, cost=run.cost.replace(method=cost)))
    # 10 times the first and 20 times the second one
    costs = {"tokens": 10 * 310 + 20 * 110, "seconds": 30 * 30, "usd": expected}
    assert _add_costs(pair, 20) == costs
