"""What a tracker is told of a finished run. It can fail: the run is on disk by then, so that is a warning."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from kgqa.errors import TrackerError
from kgqa.experiment.config.building import build
from kgqa.experiment.config.composing import Config, flatten, groups
from kgqa.experiment.session.experiment import Experiment
from kgqa.protocols import TrackedRun, Tracker
from kgqa.types import Json

FILES = ("report.html", "report.md", "metrics.json", "manifest.json", "config.yaml", "predictions.jsonl")
LONGEST = 500  # characters of a parameter; trackers cut or refuse longer ones
_CREDENTIALS = re.compile(r"://[^/@\s]+@")  # in an address


def chosen_tracker(config: Config) -> Tracker | None:
    """Raises ConfigError naming what is wrong with it, or the extra that is not installed."""
    if config.get("tracker") is None:
        return None
    tracker: Tracker = build(config["tracker"], "tracker")
    tracker.check()
    return tracker


def track(experiment: Experiment, folder: Path, metrics: Mapping[str, Json]) -> str | None:
    """Tell the tracker, if one is chosen, and give the line that says where; a failure is such a line, too."""
    tracker = chosen_tracker(experiment.config)
    if tracker is None:
        return None
    files = tuple(file for name in FILES if (file := folder / name).is_file())
    name = "/".join([experiment.name("dataset"), experiment.name("method"), folder.name])
    try:
        return f"tracked: {tracker.log(TrackedRun(name, parameters(experiment), tracked_metrics(metrics), files))}"
    except TrackerError as error:
        reason = " ".join(str(error).split())
        return f"warning: tracker={experiment.name('tracker')}: {reason:.160}; the run itself is complete"


def parameters(experiment: Experiment) -> dict[str, str]:
    """The resolved configuration, of what the run made use of; addresses without the credentials they may hold."""
    unused = (groups().keys() - experiment.choices.keys()) | {"choices", "tracker"}
    used = {key: value for key, value in experiment.config.items() if key not in unused}
    named = {group: name for group, name in experiment.choices.items() if group != "tracker"}
    flat = {key: value for key, value in flatten(used).items() if value is not None and not key.endswith("._target_")}
    return {key: _CREDENTIALS.sub("://", str(value))[:LONGEST] for key, value in (named | flat).items()}


def tracked_metrics(metrics: Mapping[str, Json]) -> dict[str, float]:
    """Scores with the ends of their intervals, recalls, the judge's accuracy, counts and costs; what is defined."""
    scores = {**metrics["scores"]}
    scores |= {f"recall_at_{budget}": each for budget, each in metrics.get("retrieval", {}).get("recall", {}).items()}
    judged = metrics.get("judge")
    if judged:
        scores["judge_accuracy"] = judged["accuracy"]
    found = {name: metrics[name] for name in ("questions", "failed", "answerless", "context_tokens", "seconds")}
    found |= {"judge_unscored": judged["unscored"]} if judged else {}
    for name, each in scores.items():
        found |= {name: each["mean"], f"{name}_low": each["low"], f"{name}_high": each["high"]}
    for side in ("method", "paid"):
        kept = ("calls", "prompt_tokens", "output_tokens", "seconds", "usd")
        found |= {f"cost_{side}_{name}": metrics["cost"][side][name] for name in kept}
    return {name: float(value) for name, value in found.items() if value is not None}
