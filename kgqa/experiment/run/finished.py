"""Find a finished run with the same identity, so that nothing has to run again."""

from __future__ import annotations

import json

from kgqa.artifacts.metrics import METRICS, Metrics
from kgqa.artifacts.predictions import PREDICTIONS, question_ids
from kgqa.artifacts.run import IDENTITY, SETTINGS, FinishedRun
from kgqa.artifacts.schema import read_json
from kgqa.artifacts.trace import TRACE
from kgqa.config.files import Config, load_yaml
from kgqa.config.settings import REACHING
from kgqa.errors import DataError
from kgqa.experiment.run.manifest import code_hash
from kgqa.experiment.session.identity import run_folder, run_identity
from kgqa.experiment.session.session import Session
from kgqa.types import Json

REPORTS = ("md", "html")  # that a run leaves in its folder
_TELLS_NOTHING = (
    "choices",
    "dry_run",
    "experiment",
    "max_failure_rate",
    "name",
    "out",
    "tracker",
    "max_parallel_questions",
)


def find_finished_run(session: Session) -> Metrics | None:
    """Return the metrics of the session's run if its folder has them for exactly this configuration and these
    questions.

    Made by other code, a run is not finished: running it again takes its replies from the cache. The data file is read
    only where its hash and the run's settings do not tell already which questions there are.
    """
    experiment, folder = session.experiment, run_folder(session)
    try:
        identity, run = read_json(folder / IDENTITY), FinishedRun.read(folder)
        config = load_yaml(folder / "config.yaml")
        reporting, asking = _reporting(config), _asking(config)
        answered = question_ids(folder)
    except (KeyError, DataError):
        return None  # not begun, killed before its end, or damaged: running it again mends it
    metrics, made = run.metrics, run.manifest
    same = identity == json.loads(json.dumps(run_identity(session))) and reporting == _reporting(experiment.config)
    same = same and made.code == code_hash(experiment.config)
    judged = experiment.config.get("judge") is None or metrics.judge is not None
    told = metrics.questions == len(answered) and (folder / TRACE).is_file()
    if not same or not judged or not told or too_many_failed(metrics, experiment.settings.max_failure_rate):
        return None
    whole = asking == _asking(experiment.config) and made.dataset.questions == len(answered)
    return metrics if whole or answered == list(experiment.question_ids) else None


def nothing_is_left(session: Session, metrics: Metrics) -> bool:
    """Return the nothing is left of a finished run: nothing failed, no setting changes what is told of it, and its
    files are of one making.

    Prices change what is told, and nothing else. Predictions that were changed after they were scored are made anew.
    """
    from kgqa.report.writing import WRITERS

    folder = run_folder(session)
    tried = metrics.failed == 0 and (metrics.judge is None or metrics.judge.unscored == 0)
    if not tried or _telling(load_yaml(folder / "config.yaml")) != _telling(session.experiment.config):
        return False
    told = (SETTINGS, *(WRITERS[form][0] for form in REPORTS))
    try:
        asked, measured, after = (
            [(folder / name).stat().st_mtime_ns for name in names] for names in ((PREDICTIONS, TRACE), (METRICS,), told)
        )
        return max(asked) <= measured[0] <= min(after)
    except OSError:
        return False  # killed before its last report, or somebody took one away


def too_many_failed(metrics: Metrics, max_failure_rate: float) -> bool:
    """Return whether the run's scores stand for nothing, so that running it again asks what failed once more."""
    return metrics.failed > max_failure_rate * metrics.questions


def _telling(config: Config) -> dict[str, Json]:
    """Return what may change anything that a run leaves."""
    engine = {key: value for key, value in config["engine"].items() if key not in REACHING}
    kept = {key: value for key, value in config.items() if key not in _TELLS_NOTHING}
    return {**kept, "engine": engine}


def _asking(config: Config) -> dict[str, Json]:
    """Return what decides, with the data's hash and the code, which questions a run has."""
    return {key: config.get(key) for key in ("dataset", "collection", "limit", "ids", "sample", "seed")}


def _reporting(config: Config) -> dict[str, Json]:
    """Return what decides a run's scores beside its identity."""
    judge = config.get("judge")
    judging = {"roles": config["roles"]["judge"], "model": config["model"], "engine": config["engine"]} if judge else {}
    return {"judge": judge, "profile": config["profile"], "dataset": config["dataset"]["profile"], **judging}
