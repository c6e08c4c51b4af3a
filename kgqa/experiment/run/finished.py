"""Whether a run's folder holds just what a session would answer, so that there is nothing to do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kgqa.errors import DataError
from kgqa.experiment.config.composing import load_yaml
from kgqa.experiment.run.manifest import code_hash
from kgqa.experiment.session.identity import run_folder, run_identity
from kgqa.experiment.session.session import Session
from kgqa.runtime.folder import IDENTITY, PREDICTIONS
from kgqa.types import Json

MAX_FAILED = 0.05  # more failed questions than this, and a run's scores stand for nothing


def finished(session: Session) -> Mapping[str, Json] | None:
    """The metrics of the session's run if its folder has them for exactly this configuration and these questions.

    Made by other code, a run is not finished: running it again takes its replies from the cache.
    """
    experiment, folder = session.experiment, run_folder(session)
    try:
        identity, metrics, made = (
            json.loads((folder / name).read_text(encoding="utf-8"))
            for name in (IDENTITY, "metrics.json", "manifest.json")
        )
        config = _reporting(load_yaml(folder / "config.yaml"))
        with (folder / PREDICTIONS).open(encoding="utf-8") as lines:
            answered = [json.loads(line)["question_id"] for line in lines]
    except (OSError, ValueError, KeyError, DataError):
        return None  # not begun, killed before its end, or damaged: running it again mends it
    same = identity == json.loads(json.dumps(run_identity(session))) and config == _reporting(experiment.config)
    same = same and made.get("code") == code_hash()
    judged = experiment.config.get("judge") is None or "judge" in metrics
    whole = answered == [question.id for question in experiment.questions] and metrics["questions"] == len(answered)
    return metrics if same and judged and whole and not too_many_questions_failed(metrics) else None


def too_many_questions_failed(metrics: Mapping[str, Json]) -> bool:
    return bool(metrics["failed"] > MAX_FAILED * metrics["questions"])


def _reporting(config: Mapping[str, Any]) -> dict[str, Any]:
    """What decides a run's scores beside its identity."""
    judge = config.get("judge")
    asked = {"roles": config["roles"]["judge"], "model": config["model"], "engine": config["engine"]} if judge else {}
    return {"judge": judge, "profile": config["profile"], "dataset": config["dataset"]["profile"], **asked}
