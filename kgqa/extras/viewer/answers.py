"""The answers of runs question by question, read once and kept in memory while their files stay the same."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from string import ascii_uppercase

from kgqa.artifacts.metrics import Metrics
from kgqa.artifacts.predictions import PREDICTIONS
from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.trace import TRACE
from kgqa.artifacts.verdicts import VERDICTS
from kgqa.experiment.compare import collect_shares, find_bounds, name_runs, open_rows
from kgqa.extras.viewer.table import Row
from kgqa.report.columns import MIXED_JUDGES, group_judges, list_judges
from kgqa.report.questions import QuestionRow, RunQuestions, is_right
from kgqa.report.shares import read_judge
from kgqa.scoring.comparison import Difference
from kgqa.scoring.repeats import compare_rows

MAX_RUNS = 8  # in memory
FILTERS = ("all questions", "flipped")
# one per run. None: the run does not have the question
Side = list[QuestionRow | None]


def read_answers(row: Row) -> RunQuestions:
    return _read(row.folder, _read_times(row.folder))


def _read_times(folder: Path) -> tuple[int, ...]:
    """Return when the answers and verdicts of a run were written."""
    files = [folder / name for name in (TRACE, PREDICTIONS, VERDICTS)]
    return tuple(file.stat().st_mtime_ns if file.is_file() else 0 for file in files)


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


def compare_scores(runs: Sequence[Row]) -> tuple[list[Difference], list[str]]:
    """Return the paired tests of `kgqa compare` over the questions that all runs have, and notes.

    Runs are named by letters. Raises as `open_rows` and `name_runs`: some runs cannot be compared.
    """
    folders = [(run.folder,) for run in runs]
    return _compare(tuple(folders), tuple(_read_times(each) for row in folders for each in row))


@lru_cache(MAX_RUNS)
def _compare(
    rows: Sequence[Sequence[Path]], _: Sequence[object]
) -> tuple[list[Difference], list[str]]:
    named = name_runs(open_rows(rows), common=True)
    scores, notes = collect_shares(named)
    return compare_rows(scores, seed=0, bounds=find_bounds(named)), notes
