"""The scores of a finished run question by question, for tests against other runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kgqa.artifacts.evaluation import EVALUATION, read_evaluation
from kgqa.artifacts.metrics import JudgeMetrics, Metrics
from kgqa.artifacts.predictions import run_predictions
from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.trace import read_questions
from kgqa.artifacts.verdicts import VERDICTS, read_verdicts
from kgqa.scoring.questions import METRICS, collect_shares, score_questions

Shares = Mapping[str, float | None]  # by question


@dataclass(frozen=True)
class RunShares:
    """The share of each question by score.

    key: dataset, profile and question ids. Runs with equal keys can be compared. judge: of the verdicts in the folder.
    """

    key: tuple[str, ...]
    by_score: Mapping[str, Shares]
    judge: JudgeMetrics | None

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
    judge = read_judge(run.folder, run.metrics)
    if judge and (run.folder / VERDICTS).is_file():
        shares["judge"] = {
            key: judgement.share for key, judgement in read_verdicts(run.folder).items()
        }
    return RunShares((run.choices["dataset"], run.metrics.profile, *predictions), shares, judge)


def read_judge(folder: Path, metrics: Metrics) -> JudgeMetrics | None:
    """Return the judge's summary of a run, or that of a later `kgqa evaluate` of the same answers."""
    if not (folder / EVALUATION).is_file():
        return metrics.judge
    evaluation = read_evaluation(folder, metrics)
    return (evaluation.judge if evaluation else None) or metrics.judge
