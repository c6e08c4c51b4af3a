"""Whether a run's folder holds just what a session would answer, so that there is nothing to do."""

from __future__ import annotations

import json

from kgqa.artefacts.form import read_json
from kgqa.artefacts.manifest import Manifest
from kgqa.artefacts.metrics import Metrics
from kgqa.artefacts.predictions import question_ids
from kgqa.artefacts.run import IDENTITY
from kgqa.errors import DataError
from kgqa.experiment.config.files import Config, load_yaml
from kgqa.experiment.run.manifest import code_hash
from kgqa.experiment.session.identity import run_folder, run_identity
from kgqa.experiment.session.session import Session
from kgqa.types import Json


def finished(session: Session) -> Metrics | None:
    """The metrics of the session's run if its folder has them for exactly this configuration and these questions.

    Made by other code, a run is not finished: running it again takes its replies from the cache.
    """
    experiment, folder = session.experiment, run_folder(session)
    try:
        identity, metrics, made = read_json(folder / IDENTITY), Metrics.read(folder), Manifest.read(folder)
        config = _reporting(load_yaml(folder / "config.yaml"))
        answered = question_ids(folder)
    except (KeyError, DataError):
        return None  # not begun, killed before its end, or damaged: running it again mends it
    same = identity == json.loads(json.dumps(run_identity(session))) and config == _reporting(experiment.config)
    same = same and made.code == code_hash(experiment.config)
    judged = experiment.config.get("judge") is None or metrics.judge is not None
    whole = answered == [question.id for question in experiment.questions] and metrics.questions == len(answered)
    enough = not too_many_failed(metrics, experiment.settings.fail_above)
    return metrics if same and judged and whole and enough else None


def too_many_failed(metrics: Metrics, fail_above: float) -> bool:
    """Whether the run's scores stand for nothing, so that running it again asks what failed once more."""
    return metrics.failed > fail_above * metrics.questions


def _reporting(config: Config) -> dict[str, Json]:
    """What decides a run's scores beside its identity."""
    judge = config.get("judge")
    judging = {"roles": config["roles"]["judge"], "model": config["model"], "engine": config["engine"]} if judge else {}
    return {"judge": judge, "profile": config["profile"], "dataset": config["dataset"]["profile"], **judging}
