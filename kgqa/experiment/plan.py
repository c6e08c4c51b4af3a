"""Plan a comparison of two runs: the questions that show a difference, and their cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path

from kgqa.artifacts.metrics import Metrics
from kgqa.experiment.compare import (
    compare_share_tests,
    describe_runs,
    label_runs,
    name_by_differences,
    name_runs,
)
from kgqa.experiment.evaluate import open_run
from kgqa.report.section import MarkedCell, Section, Value
from kgqa.scoring.comparison import ALPHA, compare
from kgqa.scoring.power import find_detectable_points, plan_questions
from kgqa.util.text import duration, pluralize

# questions: the spread of the differences of a smaller pilot is uncertain (docs/PLAN.md)
ENOUGH = 40


def plan_comparison(
    folders: Sequence[Path], points: float, power: float, *, seed: int = 0
) -> tuple[str, list[Section]]:
    """Return a heading, and for each pair of pilot runs and each metric the questions needed and their cost.

    Raises:
        ConfigError: the runs have no question in common.
        DataError: one is not the folder of a finished run.
    """
    runs = name_runs([open_run(folder) for folder in folders], common=True)
    costs = {name: Metrics.read(Path(run.name)) for name, run in runs.items()}
    names = name_by_differences(runs)
    labels = label_runs(names)
    tests = len(list(combinations(runs, 2)))
    rows: list[tuple[Value, ...]] = []
    for pilot in compare(compare_share_tests(runs), seed):
        needed, cautious = plan_questions(pilot, points, power=power, alpha=ALPHA / tests)
        pair = [costs[pilot.first], costs[pilot.second]]
        detectable = find_detectable_points(pilot, pilot.n, power=power, alpha=ALPHA / tests)
        rows.append(
            (
                MarkedCell(
                    f"{labels[pilot.first]} – {labels[pilot.second]}",
                    brief=f"{pilot.first} – {pilot.second}",
                ),
                pilot.metric,
                needed,
                cautious,
                *_costs(pair, cautious),
                None if detectable is None else f"{detectable:.1f}",
                pilot.n,
                f"{pilot.difference:+.1f}",
            )
        )
    needed_for = f"questions for {points:g} points"
    costs_of_it = ("tokens", "model time", "USD")
    of_pilot = ("pilot shows", "pilot questions", "pilot difference")
    header = ("runs", "metric", needed_for, "cautious", *costs_of_it, *of_pilot)
    test = "McNemar's exact test or the normal approximation"
    level = f"p < {ALPHA:g} divided by {pluralize(tests, 'pair')}"
    texts = (
        f"Questions: the number that shows {points:g} points with power {power:g}, by {test}, at {level}.",
        "–: no question of the pilot differs.",
        "Cautious: the same with the upper 80 % limit of the pilot's spread.",
        "Tokens, model time and USD: both runs on the cautious number, without cached replies.",
        "Pilot shows: the difference that the questions of the pilot show.",
        *_note_common(len(runs["A"].questions), costs.values()),
        *_warn_of_size(len(runs["A"].questions)),
    )
    heading = "\n".join(describe_runs(runs, names))
    return heading, [Section("Plan", header, rows, texts, optional=len(of_pilot))]


def _note_common(questions: int, runs: Iterable[Metrics]) -> list[str]:
    """Return a note if some run has more questions than all runs share."""
    if all(run.questions == questions for run in runs):
        return []
    return [f"The runs have different questions. The plan uses the {questions:,} that all have."]


def _warn_of_size(questions: int) -> list[str]:
    """Return a warning if the pilot is too small for these numbers."""
    if questions >= ENOUGH:
        return []
    count = pluralize(questions, "question")
    cause = f"**Warning**: the pilot has {count}, so that these numbers are very uncertain."
    return [f"{cause} Run both methods on {ENOUGH} or more: limit={ENOUGH}."]


def _costs(pair: Sequence[Metrics], questions: int) -> tuple[Value, ...]:
    """Return tokens, model time and dollars of all runs on a number of questions."""
    each = [(metrics.cost.method, questions / metrics.questions) for metrics in pair]
    dollars = [cost.usd * factor if cost.usd is not None else None for cost, factor in each]
    prices = [usd for usd in dollars if usd is not None]
    return (
        round(sum((cost.prompt_tokens + cost.output_tokens) * factor for cost, factor in each)),
        duration(sum(cost.seconds * factor for cost, factor in each)),
        f"{sum(prices):,.2f}" if len(prices) == len(dollars) else None,
    )
