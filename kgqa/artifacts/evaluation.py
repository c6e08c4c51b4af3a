"""`evaluation.json`: what answers are worth that were there already, a run's or those of others."""

from __future__ import annotations

from kgqa.artifacts.metrics import JudgeMetrics, ScoreSummary
from kgqa.artifacts.schema import Artifact, as_json
from kgqa.types import Json


class Evaluation(Artifact):
    """`source`: a run's folder or a file. `notes`: what else to know of it, a line each."""

    source: str
    scores: ScoreSummary
    notes: tuple[str, ...]
    judge: JudgeMetrics | None = None

    def json(self) -> dict[str, Json]:  # type: ignore[override]
        scored = {"source": self.source, **as_json(self.scores), "notes": list(self.notes)}
        return scored if self.judge is None else {**scored, "judge": as_json(self.judge)}
