"""The answers of runs question by question, read once and kept in memory while their files stay the same."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from string import ascii_uppercase

from kgqa.artifacts.metrics import Metrics
from kgqa.artifacts.predictions import PREDICTIONS
from kgqa.artifacts.run import UPPER_BOUNDS, FinishedRun
from kgqa.artifacts.trace import TRACE
from kgqa.artifacts.verdicts import RIGHT, UNSCORED, VERDICTS, judge_of, read_verdicts
from kgqa.extras.viewer.table import Row
from kgqa.report.columns import JUDGE_ACCURACY, MIXED_JUDGES, group_judges, list_judges
from kgqa.report.questions import QuestionRow, RunQuestions, is_right
from kgqa.report.shares import read_judge
from kgqa.scoring.comparison import Difference, compare
from kgqa.scoring.questions import METRICS

MAX_RUNS = 8  # in memory
FILTERS = ("all questions", "flipped")
# one per run. None: the run does not have the question
Side = list[QuestionRow | None]


def read_answers(row: Row) -> RunQuestions:
    files = [row.folder / name for name in (TRACE, PREDICTIONS, VERDICTS)]
    return _read(
        row.folder, tuple(file.stat().st_mtime_ns if file.is_file() else 0 for file in files)
    )


@lru_cache(MAX_RUNS)
def _read(folder: Path, _: Sequence[int]) -> RunQuestions:
    return RunQuestions(FinishedRun.read(folder))


def side_by_side(runs: Sequence[Row], which: str, text: str) -> list[Side]:
    """Return the questions of the first run that contain all words, with the answer of each run.

    which: "flipped" are the questions that some runs have right and others do not.
    """
    answers = [read_answers(run).rows for run in runs]
    words, sides = text.lower().split(), []
    for id_, first in answers[0].items():
        side = [rows.get(id_) for rows in answers]
        outcomes = {is_right(row) for row in side if row}
        texts = [
            id_,
            first["question"],
            *first["gold"],
            *(row["answer"] or "" for row in side if row),
        ]
        searched = "\n".join(texts).lower()
        if (which != "flipped" or len(outcomes) > 1) and all(word in searched for word in words):
            sides.append(side)
    return sides


def warn_of_questions(runs: Sequence[Row]) -> list[str]:
    """Return a warning if the runs have different questions: their scores cannot be compared."""
    ids = [set(read_answers(run).rows) for run in runs]
    if all(each == ids[0] for each in ids):
        return []
    counts = ", ".join(
        f"{letter} {len(each):,}" for letter, each in zip(ascii_uppercase, ids, strict=False)
    )
    shared = len(set.intersection(*ids))
    warning = f"The runs have different questions: {counts}, and {shared:,} in all of them."
    hint = "The scores of the table cannot be compared. The tests use only the questions that are in all runs."
    return [f"{warning} {hint}"]


def warn_of_judges(runs: Sequence[Row]) -> list[str]:
    """Return a warning if the runs have different judges: their judge accuracies cannot be compared."""
    judges = group_judges(
        (letter, read_judge(run.folder, Metrics.read(run.folder)))
        for letter, run in zip(ascii_uppercase, runs, strict=False)
    )
    return [f"{MIXED_JUDGES}: {list_judges(judges)}."] if len(judges) > 1 else []


def compare_scores(runs: Sequence[Row]) -> list[Difference]:
    """Return the paired tests over the questions that all runs have. Runs are named by letters."""
    answers = dict(zip(ascii_uppercase, (read_answers(run).rows for run in runs), strict=False))
    ids = [id_ for id_ in answers["A"] if all(id_ in rows for rows in answers.values())]
    scores: dict[str, dict[str, list[float | None]]] = {}
    for name, metric in METRICS.items():
        if metric.tested:
            percents = {
                letter: [rows[id_][name] for id_ in ids] for letter, rows in answers.items()
            }
            scores[metric.label] = {
                letter: [None if value is None else value / 100 for value in values]
                for letter, values in percents.items()
            }
    if _have_one_judge(runs):
        scores[JUDGE_ACCURACY] = {
            letter: [_read_share(rows[id_]) for id_ in ids] for letter, rows in answers.items()
        }
    bounds = {
        letter
        for letter, run in zip(ascii_uppercase, runs, strict=False)
        if run.method in UPPER_BOUNDS
    }
    return compare(scores, seed=0, bounds=bounds)


def _have_one_judge(runs: Sequence[Row]) -> bool:
    if not all((run.folder / VERDICTS).is_file() for run in runs):
        return False
    return len({judge_of(read_verdicts(run.folder)) for run in runs}) == 1


def _read_share(row: QuestionRow) -> float | None:
    """Return 1 if the judge calls an answer correct, 0 if not, None without a verdict."""
    return None if row["verdict"] in (None, UNSCORED) else float(row["verdict"] == RIGHT)
