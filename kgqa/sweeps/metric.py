"""The score that choices are made by, as a person names it: f1, judge, recall@5."""

from __future__ import annotations

import re

from kgqa.artifacts.metrics import Estimate
from kgqa.errors import ConfigError
from kgqa.sweeps.cells import CellResult

SCORES = ("em", "f1", "support_recall", "support_precision", "support_f1")


def refuse_unknown_metric(key: str, metric: str) -> None:
    if metric not in (*SCORES, "judge") and not re.fullmatch(r"recall@[1-9]\d*", metric):
        raise ConfigError(f"{key}={metric}: choose from {', '.join(SCORES)}, judge, recall@K")


def score_of(result: CellResult, metric: str, key: str = "tune.metric") -> Estimate | None:
    """Return None if the cell has no finished run. Raises ConfigError: its run has no such score; `key` was to name
    one.
    """
    metrics = result.metrics
    if metrics is None or result.status in ("failed", "not run"):
        return None
    if metric.startswith("recall@"):
        recall = metrics.retrieval.recall if metrics.retrieval else {}
        score = recall.get(metric.partition("@")[2])
        known = ", ".join(f"recall@{budget}" for budget in recall) or "none: the method does not retrieve"
    elif metric == "judge":
        score, known = metrics.judge.accuracy if metrics.judge else None, "give judge=NAME"
    else:
        score = metrics.scores.named().get(metric)
        known = "the data set does not define it for these questions"
    if score is None or score.mean is None:
        raise ConfigError(f"{key}={metric}: the runs have no such score ({known})")
    return score
