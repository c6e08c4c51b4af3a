"""`evaluation.json`: the scores of answers, and the accuracy by a judge, corrected by labels."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from kgqa.artifacts.metrics import (
    UNDEFINED,
    Estimate,
    JudgeMetrics,
    LabelAgreement,
    Metrics,
    ScoreSummary,
)
from kgqa.artifacts.schema import Artifact, Number, as_json, check_json, omit_none, read_json
from kgqa.artifacts.verdicts import find_judge
from kgqa.errors import DataError
from kgqa.types import Json
from kgqa.util.text import score_text

EVALUATION = "evaluation.json"

Source = Literal["own", "other"]


class LengthGroup(Artifact):
    """Answers of similar length, with the percentage that each counts as right."""

    words: str
    judge: Estimate
    em: Estimate
    labels: Estimate


class Consistency(Artifact):
    """The percentage of verdicts that stay the same.

    swapped: if the answer is shown before the references. repeated: if the reply is sampled. swapped_accuracy: the
    accuracy by the swapped verdicts.
    """

    swapped: Estimate
    repeated: Estimate
    accuracy: Estimate
    swapped_accuracy: Estimate


class Calibration(Artifact):
    """The accuracy of one set of answers after correction for the judge's errors.

    labels: the number of labels of these answers. source: "own": the correction is by labels of these answers. "other":
    by labels of the other sets of answers. None: there are no labels.
    sensitivity, specificity: percentages of right and wrong answers that the judge recognizes.
    more_labels: how many more labels would halve the width of the interval. None: no number of labels would.
    """

    answers: int
    labels: int
    source: Source | None
    accuracy: Estimate
    corrected: Estimate = UNDEFINED
    sensitivity: Estimate = UNDEFINED
    specificity: Estimate = UNDEFINED
    agreement: LabelAgreement | None = omit_none()
    kappa: Number | None = None
    kappa_low: Number | None = None
    kappa_high: Number | None = None
    more_labels: int | None = None
    by_length: tuple[LengthGroup, ...] = ()
    consistency: Consistency | None = omit_none()
    warnings: tuple[str, ...] = ()

    @property
    def kappa_text(self) -> str:
        """Return kappa with its interval."""
        if self.kappa is None or self.kappa_low is None or self.kappa_high is None:
            return "–"
        low, high = score_text(self.kappa_low, digits=2), score_text(self.kappa_high, digits=2)
        return f"{score_text(self.kappa, digits=2)} [{low}, {high}]"


class Evaluation(Artifact):
    """The result of `kgqa evaluate`. `source`: a run's folder or a file. `notes`, `warnings`: lines for the reader."""

    source: str
    scores: ScoreSummary
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    judge: JudgeMetrics | None = None
    calibration: Calibration | None = None

    def json(self) -> dict[str, Json]:  # type: ignore[override]
        lines = {"notes": list(self.notes), "warnings": list(self.warnings)}
        scored = {"source": self.source, **as_json(self.scores), **lines}
        judged = {"judge": self.judge, "calibration": self.calibration}
        return {
            **scored,
            **{key: as_json(value) for key, value in judged.items() if value is not None},
        }


def has_evaluation(folder: Path) -> bool:
    """Return whether a folder has a file of `kgqa evaluate`, and not another file of this name."""
    try:
        record = read_json(folder / EVALUATION)
    except DataError:
        return False
    return isinstance(record, dict) and {"source", "questions", "notes"} <= record.keys()


def read_evaluation(folder: Path, scores: ScoreSummary) -> Evaluation | None:
    """Read the last evaluation of a run. None: there is none, or it is of other answers than these scores.

    Raises DataError: the file is damaged.
    """
    file = folder / EVALUATION
    if not file.is_file():
        return None
    record, remedy = read_json(file), "Run kgqa evaluate again."
    summary = check_json(ScoreSummary, record, str(file), remedy)
    compared = [(each.questions, each.failed, each.scores.get("em")) for each in (summary, scores)]
    if compared[0] != compared[1]:
        return None
    return check_json(Evaluation, {**record, "scores": summary}, str(file), remedy)


def read_judged_metrics(folder: Path) -> Metrics:
    """Read the metrics of a run, with the judge of the verdicts in its folder.

    `kgqa run` and `kgqa evaluate` both replace the verdicts, and each writes its own summary of them. The summary of
    other verdicts is not used.

    Raises DataError: the run is not finished, or a file is damaged.
    """
    metrics = Metrics.read(folder)
    identity = find_judge(folder)
    if identity is None:
        return metrics.replace(judge=None)
    evaluation = read_evaluation(folder, metrics)
    summaries = [judge for judge in (evaluation and evaluation.judge, metrics.judge) if judge]
    judges = [judge for judge in summaries if judge.identity == identity] or [
        # written before summaries had it
        judge
        for judge in summaries
        if judge.identity is None
    ]
    # both of the same judge: a second attempt has fewer answers without a verdict, and only an evaluation has a
    # correction by labels
    return metrics.replace(judge=min(judges, key=lambda judge: judge.unscored, default=None))
