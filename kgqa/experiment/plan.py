"""Plan a comparison of two runs: the questions that show a difference, and their cost."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

from kgqa.artifacts.manifest import Manifest
from kgqa.artifacts.metrics import Metrics
from kgqa.artifacts.run import SETTINGS, Chosen
from kgqa.artifacts.schema import read
from kgqa.config.overrides import override_values
from kgqa.config.settings import read_settings
from kgqa.errors import ConfigError, KgqaError
from kgqa.experiment.compare import (
    check_metrics,
    choose_metrics,
    collect_shares,
    count_failed,
    describe_runs,
    find_baseline,
    find_bounds,
    find_lower_better,
    has_repeats,
    label_runs,
    name_by_differences,
    name_runs,
    open_rows,
    require_pairs,
)
from kgqa.experiment.evaluate import AnsweredQuestions
from kgqa.experiment.selection import GIVEN, QuestionSelection
from kgqa.report.evaluation import MCNEMAR, describe_level, points_text
from kgqa.report.page import Tables
from kgqa.report.section import Legend, MarkedCell, Section, Value
from kgqa.scoring.comparison import ALPHA, Difference, count_families, explain_direction
from kgqa.scoring.power import ENOUGH, MOST, find_detectable_points, plan_questions
from kgqa.scoring.repeats import compare_rows
from kgqa.types import Json
from kgqa.util.text import duration, pluralize, score_text
from kgqa.util.validators import Validator

Points = Annotated[
    float, Validator("must be from 0.01 to 100 points", lambda points: 0.01 <= points <= 100)
]
Probability = Annotated[
    float, Validator("must be above 0.05 and below 1", lambda power: 0.05 < power < 1)
]
REPEATS_TEXT = (
    "Repeats: the numbers are for as many repeats as those of the pilot. A spread between them that more questions do "
    "not reduce counts if an F test shows it (p < 0.05), and has no cautious limit."
)
TOO_DIFFERENT = (
    "{rows}: the repeats differ by so much that no number of questions shows {points}. Use more repeats, e.g. "
    "repeats=10."
)
FEWER_TESTS = "Fewer tests need fewer questions: set metrics=f1 here and in kgqa compare"
OF_PAIRS = ", or baseline=ROW with the letter or the name of a run"
OF_REPEATS = "the test of repeats"
# questions of a dataset of which a pilot that is large enough would be half or more
SMALL_DATASET = 2 * ENOUGH
# in place of points
NO_DIFFERENCE = "none"
# keys of a pilot that choose its questions or its folder
_OWN_KEYS = ("limit", "sample", "sample_by", "ids", "shard", "output_dir", "run_name")


@dataclass(frozen=True, repr=False)
class ComparisonPlan(Tables):
    """The questions that a comparison needs, with their cost.

    rows: one per metric and pair of runs: the folders, the numbers of the table, and None for what is unknown. Of
    repeats, first and second are the folder of the first one. Infinite points: so few questions show no difference.
    command: runs the methods on the questions of the plan, or of a larger pilot. It is "" if the pilot has as many, or
    all of the dataset, or if the commands of its runs do not show it.
    """

    rows: Sequence[Mapping[str, Json]]
    command: str


def plan_comparison(
    rows: Sequence[Sequence[Path]],
    points: float,
    power: float,
    profile: str | None = None,
    *,
    seed: int = 0,
    alpha: float = ALPHA,
    baseline: str | None = None,
    metrics: Sequence[str] = (),
    commands: Mapping[Path, Sequence[str]] = MappingProxyType({}),
) -> ComparisonPlan:
    """Return for each pair of pilot runs and each metric the questions needed and their cost.

    rows, alpha, baseline, metrics: as for `compare_answers`. commands: of the runs of sweeps, see `list_cell_commands`.

    Raises:
        ConfigError: the runs have no question in common or different profiles, the power is not above alpha, or there
            is no such baseline or metric.
        DataError: one is not the folder of a finished run.
    """
    if power <= alpha:
        raise ConfigError(f"power={power:g}: must be above alpha={alpha:g}")
    check_metrics(metrics)
    opened = open_rows(rows, profile)
    runs = name_runs(opened, common=True)
    costs = {
        name: [Metrics.read(Path(run.name)) for run in repeats] for name, repeats in runs.items()
    }
    names = name_by_differences(runs)
    labels = label_runs(names)
    reference = None if baseline is None else find_baseline(baseline, runs, names)
    scores, notes = collect_shares(runs, metrics)
    pilots = compare_rows(
        choose_metrics(scores, metrics),
        seed,
        baseline=reference,
        bounds=find_bounds(runs),
        lower_is_better=find_lower_better(),
    )
    require_pairs(pilots)
    # kgqa compare corrects for the same tests
    tests = count_families(pilots)
    alphas = {each: alpha / count for each, count in tests.items()}
    pairs = len({(pilot.first, pilot.second) for pilot in pilots})
    pilot_questions = len(runs["A"][0].questions)
    plans = [
        tuple(
            _count_all(count, pilot.n, pilot_questions)
            for count in plan_questions(pilot, points, power=power, alpha=alphas[pilot.upper_bound])
        )
        for pilot in pilots
    ]
    most = max(MOST if cautious is None else cautious for _, cautious in plans)
    # one more, so that the dataset is not taken for one of this size
    available = _count_questions(runs["A"][0], max(most, SMALL_DATASET) + 1)
    # the questions that the dataset has, if they are fewer than planned
    all_of_it = available if available is not None and available < most else None
    # a pilot of the complete dataset would show the same as "all N show"
    is_part = all_of_it != pilot_questions
    planned: list[tuple[Value, ...]] = []
    rows_of_pairs = list[dict[str, Json]]()
    unknown = list[tuple[Difference, int]]()
    too_different = list[str]()
    for pilot, (needed, cautious) in zip(pilots, plans, strict=True):
        pair = [*costs[pilot.first], *costs[pilot.second]]
        counts = {
            **({"dataset": round(all_of_it * pilot.n / pilot_questions)} if all_of_it else {}),
            "pilot": pilot.n,
        }
        shows = {
            name: find_detectable_points(pilot, n, power=power, alpha=alphas[pilot.upper_bound])
            for name, n in counts.items()
        }
        cost = _add_costs(pair, cautious and min(cautious, all_of_it or cautious))
        rows_of_pairs.append(
            {
                "metric": pilot.metric,
                "first": runs[pilot.first][0].name,
                "second": runs[pilot.second][0].name,
                "questions": needed,
                "cautious": cautious,
                **cost,
                "dataset_shows": shows.get("dataset"),
                "pilot_shows": shows["pilot"],
                "pilot_questions": pilot.n,
                "pilot_difference": pilot.difference,
            }
        )
        # of many pairs, these rows would hide the others
        if needed is None and cautious is not None and pairs > 1:
            unknown.append((pilot, cautious))
            continue
        if cautious is None:
            too_different.append(f"{pilot.metric} of {pilot.first} – {pilot.second}")
        *of_all, of_pilot_questions = map(_show_points, shows.values())
        planned.append(
            (
                MarkedCell(
                    f"{labels[pilot.first]} – {labels[pilot.second]}",
                    brief=f"{pilot.first} – {pilot.second}",
                ),
                pilot.title,
                needed,
                cautious,
                *of_all,
                *_show_costs(**cost),
                *([of_pilot_questions] if is_part else []),
                pilot.n,
                score_text(pilot.difference, "+"),
            )
        )
    needed_for = f"questions for {points_text(points)}"
    of_dataset = (f"all {all_of_it:,} show",) if all_of_it else ()
    costs_of_it = ("tokens", "model time", "USD")
    pilot_shows = ("pilot shows",) if is_part else ()
    of_pilot = (*pilot_shows, "pilot questions", "pilot difference")
    header = ("runs", "metric", needed_for, "cautious", *of_dataset, *costs_of_it, *of_pilot)
    approximate = "the normal approximation"
    powers = (
        MCNEMAR if each.is_exact else OF_REPEATS if each.repeats else approximate for each in pilots
    )
    test = " or ".join(dict.fromkeys(powers))
    level = describe_level(alpha, tests)
    at_most = f", at most {all_of_it:,}" if all_of_it else ""
    texts = (
        *_warn_of_size(pilot_questions, available),
        *_count_unknown(unknown),
        *(
            [TOO_DIFFERENT.format(rows=", ".join(too_different), points=points_text(points))]
            if too_different
            else []
        ),
        *(
            [f"{FEWER_TESTS}{OF_PAIRS * (pairs > 1)}."]
            if len(pilots) > 1 and not (metrics or baseline)
            else []
        ),
        *explain_direction(pilot.title for pilot in pilots),
        f"Questions: the number that shows {points_text(points)} with power {power:g}, by {test}, at {level}.",
        *(
            ["–: no question of the pilot differs."]
            # pairs of many without one are not in the table
            if pairs == 1
            and any(needed is None and cautious is not None for needed, cautious in plans)
            else []
        ),
        "Cautious: the same with the upper 80 % limit of the pilot's spread between questions.",
        *_describe_all(all_of_it),
        *_note_undefined(pilots, pilot_questions),
        *([REPEATS_TEXT] if has_repeats(runs) else []),
        f"Tokens, model time and USD: both runs on the cautious number{at_most}, without cached replies.",
        *(
            ["USD: – if a model has no price."]
            if any(
                row[header.index("USD")] is None and row[header.index("tokens")] is not None
                for row in planned
            )
            else []
        ),
        *(
            Legend(column, "Pilot shows: the difference that the questions of the pilot show.")
            for column in pilot_shows
        ),
        *([f"{NO_DIFFERENCE}: so few questions show no difference."] if _has_none(planned) else []),
        *_note_common(pilot_questions, chain.from_iterable(costs.values())),
    )
    heading = "\n".join([*describe_runs(runs, names), *count_failed(runs), *notes])
    section = Section("Plan", header, planned, texts, optional=len(of_pilot))
    # a small pilot comes first
    wanted = _choose_pilot(available)
    if pilot_questions >= ENOUGH:
        wanted = max(cautious or 0 for _, cautious in plans)
        wanted = wanted if available is None else min(wanted, available)
    folders = [[Path(run.name) for run in repeats] for repeats in runs.values()]
    ran = [
        [commands.get(folder) or Manifest.read(folder).command for folder in row] for row in folders
    ]
    command = _repeat_on(ran, wanted) if wanted > pilot_questions else ""
    return ComparisonPlan(heading, [section], rows_of_pairs, command)


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


def _show_points(points: float | None) -> str | None:
    """Return the difference that some questions show."""
    if points is None:
        return None
    return NO_DIFFERENCE if math.isinf(points) else score_text(points)


def _has_none(rows: Iterable[Sequence[Value]]) -> bool:
    return any(NO_DIFFERENCE in row for row in rows)


def _describe_all(questions: int | None) -> list[str]:
    """Return what the questions of the dataset show, if they are fewer than planned."""
    if questions is None:
        return []
    smallest = "the smallest difference that the dataset shows, as it has no more questions"
    return [f"All {questions:,} show: {smallest}. If the plan needs more, use several datasets."]


def _count_all(count: int | None, defined: int, questions: int) -> int | None:
    """Return how many questions have `count` that define a score, if `defined` of these questions do."""
    return None if count is None else min(math.ceil(count * questions / defined), MOST)


def _note_undefined(pilots: Sequence[Difference], questions: int) -> list[str]:
    """Return a line per score that not all questions of the pilot define in both runs."""
    fewest = {
        metric: min(pilot.n for pilot in pilots if pilot.metric == metric)
        for metric in dict.fromkeys(pilot.metric for pilot in pilots if pilot.n < questions)
    }
    return [
        f"{metric}: {count:,} of the pilot's {questions:,} questions have it in both runs. The planned numbers count "
        "all questions, at the same share."
        for metric, count in fewest.items()
    ]


def _note_common(questions: int, runs: Iterable[Metrics]) -> list[str]:
    """Return a note if some run has more questions than all runs share."""
    if all(run.questions == questions for run in runs):
        return []
    return [f"The runs have different questions. The plan uses the {questions:,} that all have."]


def _count_unknown(pilots: Sequence[tuple[Difference, int]]) -> list[str]:
    """Return a line per metric about the pairs without a differing question. pilots: with the cautious numbers."""
    numbers: dict[str, list[int]] = {}
    for pilot, cautious in pilots:
        numbers.setdefault(pilot.metric, []).append(cautious)
    return [
        f"{metric}: in {pluralize(len(each), 'pair')} no question of the pilot differs. Cautious: {max(each):,}."
        for metric, each in numbers.items()
    ]


def _warn_of_size(questions: int, available: int | None) -> list[str]:
    """Return a warning if the pilot is too small. available: the questions of the dataset."""
    if questions >= ENOUGH:
        return []
    count = pluralize(questions, "question")
    warning = f"**Warning**: the pilot has {count}, so that these numbers are very uncertain."
    if available is not None and available <= questions:
        return [f"{warning} The dataset has no others."]
    pilot = _choose_pilot(available)
    if pilot == available:
        return [f"{warning} Run the methods on all {pilot} of the dataset: limit={pilot}."]
    return [f"{warning} Run the methods on {pilot} or more, then plan again: limit={pilot}."]


def _choose_pilot(available: int | None) -> int:
    """Return how many questions a pilot needs. Of a small dataset these are all: few would be saved."""
    return ENOUGH if available is None or available > SMALL_DATASET else available


def _repeat_on(rows: Sequence[Sequence[Sequence[str]]], questions: int) -> str:
    """Return the command that runs rows on more questions, or "" if their commands do not show it.

    rows: the commands of each row and its repeats.
    """
    limit = f"limit={questions}"
    commands = [command for repeats in rows for command in repeats]
    if any(tuple(command[:2]) != ("kgqa", "run") or "-m" in command for command in commands):
        return ""
    values = []
    for repeats in rows:
        first, *others = [override_values(word for word in each if "=" in word) for each in repeats]
        # repeats=N sets the keys that differ
        own = {
            key: value
            for key, value in first.items()
            if key not in _OWN_KEYS and all(other.get(key) == value for other in others)
        }
        values.append(own | ({"repeats": f"{len(repeats)}"} if others else {}))
    keys = dict.fromkeys(key for each in values for key in each)
    varied = [key for key in keys if len({each.get(key) for each in values}) > 1]
    words = [[f"{key}={value}" for key, value in each.items()] for each in values]
    listed = [each.get(key) or "," for key in varied for each in values]
    if len(varied) > 1 or any("," in value for value in listed):
        return " && ".join(shlex.join(["kgqa", "run", *each, limit]) for each in words)
    sweep = [f"{key}={','.join(listed) if key in varied else values[0][key]}" for key in keys]
    return shlex.join(["kgqa", "run", *(["-m"] if varied else []), *sweep, limit])


def _add_costs(pair: Sequence[Metrics], questions: int | None) -> dict[str, float | None]:
    """Return tokens, seconds and dollars of all runs on a number of questions, None if no number is enough."""
    if questions is None:
        return {"tokens": None, "seconds": None, "usd": None}
    # without any answer, the calls of all questions are the best guess
    each = [
        (metrics.cost.method, questions / (metrics.answered_questions or metrics.questions))
        for metrics in pair
    ]
    dollars = [cost.usd * factor if cost.usd is not None else None for cost, factor in each]
    prices = [usd for usd in dollars if usd is not None]
    return {
        "tokens": round(
            sum((cost.prompt_tokens + cost.output_tokens) * factor for cost, factor in each)
        ),
        "seconds": sum(cost.seconds * factor for cost, factor in each),
        "usd": sum(prices) if len(prices) == len(dollars) else None,
    }


def _show_costs(
    tokens: float | None, seconds: float | None, usd: float | None
) -> tuple[Value, ...]:
    """Return the cells of costs, with the time as a text."""
    return (
        tokens,
        None if seconds is None else duration(seconds),
        None if usd is None else f"{usd:,.2f}",
    )
