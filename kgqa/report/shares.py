"""The scores of a finished run question by question, for tests against other runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kgqa.artifacts.metrics import JudgeMetrics
from kgqa.artifacts.predictions import run_predictions
from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.trace import read_questions
from kgqa.artifacts.verdicts import list_verdicts, read_verdicts
from kgqa.scoring.questions import METRICS, collect_shares, score_questions

Shares = Mapping[str, float | None]  # by question


@dataclass(frozen=True)
class RunShares:
    """The share of each question by score.

    key: dataset, profile and question ids. Runs with equal keys can be compared. judge: of the verdicts in the folder.
    failed: the ids of the failed questions.
    """

    key: tuple[str, ...]
    by_score: Mapping[str, Shares]
    judge: JudgeMetrics | None
    failed: frozenset[str] = frozenset()

    def of(self, score: str) -> Shares:
        """Return the shares of a score, {} if it has none."""
        return self.by_score.get(score, {})


def read_shares(run: FinishedRun) -> RunShares:
    """Read a run's shares, without support scores if the method reads no passages. Score it if this was not done here.

    Raises DataError: the run is damaged.
    """
    predictions = {prediction.question_id: prediction for prediction in run_predictions(run.folder)}
    every = run.shares
    if every is None:
        every = collect_shares(
            score_questions(read_questions(run.folder), predictions, run.metrics.profile)
        )
    reads_passages = any(prediction.evidence for prediction in predictions.values())
    shares = {
        name: every[name]
        for name, metric in METRICS.items()
        if reads_passages or metric.of != "passages"
    }
    judge = run.metrics.judge
    if judge:
        shares["judge"] = list_verdicts(read_verdicts(run.folder).values())
    failed = frozenset(key for key, each in predictions.items() if each.scored_answer is None)
    key = (run.choices["dataset"], run.metrics.profile, *predictions)
    return RunShares(key, shares, judge, failed)
