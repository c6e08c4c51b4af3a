"""The answers of runs question by question, read once and kept in memory while their files stay the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from string import ascii_uppercase
from typing import NamedTuple

from kgqa.artifacts.evaluation import read_judged_metrics
from kgqa.artifacts.predictions import PREDICTIONS
from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.trace import TRACE
from kgqa.artifacts.verdicts import VERDICTS
from kgqa.experiment.compare import (
    collect_shares,
    compare_answered,
    count_failed,
    find_bounds,
    find_failed,
    find_lower_better,
    name_runs,
    open_rows,
)
from kgqa.extras.viewer.table import Row
from kgqa.report.columns import MIXED_JUDGES, group_judges, group_texts, list_judges
from kgqa.report.questions import QuestionRow, RunQuestions, is_right
from kgqa.scoring.comparison import Difference
from kgqa.scoring.own_metrics import list_own_metrics
from kgqa.scoring.repeats import compare_rows

MAX_RUNS = 32  # in memory
MAX_COMPARISONS = 8
FILTERS = ("all questions", "in all runs", "flipped")


@dataclass(frozen=True)
class Shown:
    """The answer of a run to a question, or of some repeats. key: the first of these runs. count: their number."""

    row: QuestionRow
    key: str
    count: int = 1


# the different answers of each run, or of its repeats. Empty: it does not have the question
Side = list[list[Shown]]


def read_answers(folder: Path) -> RunQuestions:
    return _read(folder, _read_versions(folder))


def _read_versions(folder: Path) -> tuple[object, ...]:
    """Return what the scores of a run depend on: when its answers and verdicts were written, and your metrics."""
    files = [folder / name for name in (TRACE, PREDICTIONS, VERDICTS)]
    times = (file.stat().st_mtime_ns if file.is_file() else 0 for file in files)
    return (*times, *list_own_metrics().values())


@lru_cache(MAX_RUNS)
def _read(folder: Path, _: Sequence[object]) -> RunQuestions:
    return RunQuestions(FinishedRun.read(folder))


def side_by_side(runs: Sequence[Row], which: str, text: str) -> list[Side]:
    """Return the questions of any run that contain all words, with the answers of each run.

    The questions of the first run are first. which: a name of FILTERS. "flipped" are the questions that some runs have
    right more often than others.
    """
    words, sides = text.lower().split(), []
    repeats = [
        {key: read_answers(folder).rows for key, folder in run.folders.items()} for run in runs
    ]
    questions = dict.fromkeys(id_ for each in repeats for rows in each.values() for id_ in rows)
    for id_ in questions:
        answered = [
            {key: rows[id_] for key, rows in each.items() if id_ in rows} for each in repeats
        ]
        if which == "in all runs" and not all(answered):
            continue
        first = next(row for each in answered for row in each.values())
        shares = {fmean(map(is_right, each.values())) for each in answered if each}
        answers = (row["answer"] or "" for each in answered for row in each.values())
        searched = "\n".join([id_, first["question"], *first["gold"], *answers]).lower()
        if (which != "flipped" or len(shares) > 1) and all(word in searched for word in words):
            sides.append([_join_answers(each) for each in answered])
    return sides


def question_of(side: Side) -> QuestionRow:
    """Return the row of a question in the first run that has it."""
    return next(each.row for answers in side for each in answers)


def _join_answers(rows: Mapping[str, QuestionRow]) -> list[Shown]:
    """Return the different answers of the repeats of a run by key, the most frequent first."""
    groups = group_texts((key, (row["answer"], row["error"])) for key, row in rows.items())
    answers = (Shown(rows[keys[0]], keys[0], len(keys)) for keys in groups.values())
    return sorted(answers, key=lambda each: -each.count)


def warn_of_questions(runs: Sequence[Row]) -> list[str]:
    """Return a warning if the runs have different questions: their scores cannot be compared."""
    ids = [
        set.intersection(*(set(read_answers(folder).rows) for folder in run.folders.values()))
        for run in runs
    ]
    if all(each == ids[0] for each in ids):
        return []
    counts = ", ".join(
        f"{letter} {len(each):,}" for letter, each in zip(ascii_uppercase, ids, strict=False)
    )
    shared = len(set.intersection(*ids))
    warning = f"The runs have different questions: {counts}, and {shared:,} in all of them."
    hint = "The scores of the table cannot be compared. The tests use only the questions that are in all runs."
    return [f"{warning} {hint}"]


def warn_of_mixed_judges(runs: Sequence[Row]) -> list[str]:
    """Return a warning if the runs have different judges: their judge accuracies cannot be compared."""
    judges = group_judges(
        (letter, read_judged_metrics(folder).judge)
        for letter, run in zip(ascii_uppercase, runs, strict=False)
        for folder in run.folders.values()
    )
    return [f"{MIXED_JUDGES}: {list_judges(judges)}."] if len(judges) > 1 else []


class Tests(NamedTuple):
    """The paired tests of runs, and notes.

    answered: the differences over the questions that both runs answered, if one of them failed some.
    failed: the number of failed questions of each run.
    """

    differences: list[Difference]
    answered: list[Difference]
    failed: Mapping[str, int]
    notes: list[str]


def compare_scores(runs: Sequence[Row]) -> Tests:
    """Return the paired tests of `kgqa compare` over the questions that all runs have.

    Runs are named by letters. The tests of a mean use all its repeats.

    Raises as `open_rows` and `name_runs`: some runs cannot be compared.
    """
    folders = [tuple(run.folders.values()) for run in runs]
    return _compare(tuple(folders), tuple(_read_versions(each) for row in folders for each in row))


@lru_cache(MAX_COMPARISONS)
def _compare(rows: Sequence[Sequence[Path]], _: Sequence[object]) -> Tests:
    named = name_runs(open_rows(rows), common=True)
    scores, notes = collect_shares(named)
    differences = compare_rows(
        scores, seed=0, bounds=find_bounds(named), lower_is_better=find_lower_better()
    )
    answered = compare_answered(named, scores, differences, seed=0)
    failed = {letter: len(questions) for letter, questions in find_failed(named).items()}
    return Tests(differences, answered, failed, [*count_failed(named), *notes])
