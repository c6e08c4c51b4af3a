"""Plan a comparison of two runs: the questions that show a difference, and their cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, islice
from pathlib import Path

from kgqa.artifacts.manifest import Manifest
from kgqa.artifacts.metrics import Metrics
from kgqa.artifacts.run import SETTINGS, Chosen
from kgqa.artifacts.schema import read
from kgqa.config.settings import read_settings
from kgqa.errors import KgqaError
from kgqa.experiment.compare import (
    compare_share_tests,
    describe_runs,
    label_runs,
    name_by_differences,
    name_runs,
)
from kgqa.experiment.evaluate import AnsweredQuestions, open_run
from kgqa.experiment.selection import GIVEN, QuestionSelection
from kgqa.report.section import MarkedCell, Section, Value
from kgqa.scoring.comparison import ALPHA, compare
from kgqa.scoring.power import ENOUGH, find_detectable_points, plan_questions
from kgqa.util.text import duration, pluralize


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
    alpha = ALPHA / tests
    pilots = compare(compare_share_tests(runs), seed)
    plans = [plan_questions(pilot, points, power=power, alpha=alpha) for pilot in pilots]
    most = max(cautious for _, cautious in plans)
    available = _count_questions(runs["A"], max(most, ENOUGH))
    # the questions that the dataset has, if they are fewer than planned
    all_of_it = available if available is not None and available < most else None
    rows: list[tuple[Value, ...]] = []
    for pilot, (needed, cautious) in zip(pilots, plans, strict=True):
        pair = [costs[pilot.first], costs[pilot.second]]
        smallest = [
            find_detectable_points(pilot, count, power=power, alpha=alpha)
            for count in (*([all_of_it] if all_of_it else []), pilot.n)
        ]
        *of_all, of_pilot_questions = (None if each is None else f"{each:.1f}" for each in smallest)
        rows.append(
            (
                MarkedCell(
                    f"{labels[pilot.first]} – {labels[pilot.second]}",
                    brief=f"{pilot.first} – {pilot.second}",
                ),
                pilot.metric,
                needed,
                cautious,
                *of_all,
                *_costs(pair, min(cautious, all_of_it or cautious)),
                of_pilot_questions,
                pilot.n,
                f"{pilot.difference:+.1f}",
            )
        )
    needed_for = f"questions for {points:g} points"
    of_dataset = (f"all {all_of_it:,} show",) if all_of_it else ()
    costs_of_it = ("tokens", "model time", "USD")
    of_pilot = ("pilot shows", "pilot questions", "pilot difference")
    header = ("runs", "metric", needed_for, "cautious", *of_dataset, *costs_of_it, *of_pilot)
    test = "McNemar's exact test or the normal approximation"
    level = f"p < {ALPHA:g} divided by {pluralize(tests, 'pair')}"
    at_most = f", at most {all_of_it:,}" if all_of_it else ""
    texts = (
        f"Questions: the number that shows {points:g} points with power {power:g}, by {test}, at {level}.",
        "–: no question of the pilot differs.",
        "Cautious: the same with the upper 80 % limit of the pilot's spread.",
        *_describe_all(all_of_it),
        f"Tokens, model time and USD: both runs on the cautious number{at_most}, without cached replies.",
        "Pilot shows: the difference that the questions of the pilot show.",
        *_note_common(len(runs["A"].questions), costs.values()),
        *_warn_of_size(len(runs["A"].questions), available),
    )
    heading = "\n".join(describe_runs(runs, names))
    return heading, [Section("Plan", header, rows, texts, optional=len(of_pilot))]


def _count_questions(run: AnsweredQuestions, most: int) -> int | None:
    """Return how many questions the dataset of a run has, at most this many. None: its file is missing or changed."""
    assert run.folder is not None
    assert run.config is not None
    try:
        if read(Chosen, run.folder / SETTINGS).choices["dataset"] == GIVEN:
            return None
        data = QuestionSelection(run.config, read_settings(run.config))
        if data.sha256 != Manifest.read(run.folder).dataset.sha256:
            return None
        return sum(1 for _ in islice(data.all_questions(), most))
    # a plan needs no data
    except KgqaError:
        return None


def _describe_all(questions: int | None) -> list[str]:
    """Return what the questions of the dataset show, if they are fewer than planned."""
    if questions is None:
        return []
    smallest = "the smallest difference that the dataset shows, as it has no more questions"
    return [f"All {questions:,} show: {smallest}. If the plan needs more, use several datasets."]


def _note_common(questions: int, runs: Iterable[Metrics]) -> list[str]:
    """Return a note if some run has more questions than all runs share."""
    if all(run.questions == questions for run in runs):
        return []
    return [f"The runs have different questions. The plan uses the {questions:,} that all have."]


def _warn_of_size(questions: int, available: int | None) -> list[str]:
    """Return a warning if the pilot is too small for these numbers. available: the questions of the dataset."""
    if questions >= ENOUGH:
        return []
    count = pluralize(questions, "question")
    warning = f"**Warning**: the pilot has {count}, so that these numbers are very uncertain."
    if available is None or available >= ENOUGH:
        return [f"{warning} Run both methods on {ENOUGH} or more: limit={ENOUGH}."]
    if available > questions:
        return [f"{warning} Run both methods on all {available} of the dataset: limit={available}."]
    return [f"{warning} The dataset has no others."]


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
