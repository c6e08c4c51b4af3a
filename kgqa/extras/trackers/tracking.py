"""Log a finished run to a tracker. A failure is a warning, because the run is already saved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kgqa.artifacts.manifest import MANIFEST
from kgqa.artifacts.metrics import METRICS, Metrics
from kgqa.artifacts.predictions import PREDICTIONS
from kgqa.config import building as parts
from kgqa.config.files import Config, flatten, groups
from kgqa.errors import TrackerError
from kgqa.experiment.experiment import Experiment
from kgqa.protocols import TrackedRun, Tracker
from kgqa.runtime.display import Display
from kgqa.util.redaction import redact

FILES = ("report.html", "report.md", METRICS, MANIFEST, "config.yaml", PREDICTIONS)
# characters of a parameter; trackers cut or refuse longer ones
LONGEST = 500
COSTS = ("calls", "prompt_tokens", "output_tokens", "reasoning_tokens", "seconds", "usd")


def choose_tracker(config: Config) -> Tracker | None:
    """Build the tracker. Raises ConfigError if a key is wrong or its package is not installed."""
    if config.get("tracker") is None:
        return None
    tracker = parts.build_part(config["tracker"], "tracker", Tracker)
    tracker.check()
    return tracker


def track_run(experiment: Experiment, folder: Path, metrics: Metrics, display: Display) -> None:
    """Log a run if a tracker is chosen, and show the place or a warning."""
    name = "/".join([experiment.name("dataset"), experiment.name("method"), folder.name])
    files = tuple(file for name in FILES if (file := folder / name).is_file())
    track(
        experiment.config,
        lambda: TrackedRun(name, parameters(experiment), list_tracked_metrics(metrics), files),
        display,
    )


def track(config: Config, describe: Callable[[], TrackedRun], display: Display) -> None:
    """Log a run or a training if a tracker is chosen, and show the place or a warning."""
    if (tracker := choose_tracker(config)) is None:
        return
    try:
        run = describe()
        parameters = {key: redact(value)[:LONGEST] for key, value in run.parameters.items()}
        display.line(f"tracked: {tracker.log(replace(run, parameters=parameters))}")
    except TrackerError as error:
        reason = " ".join(redact(error).split())
        display.line(
            f"warning: tracker={config['choices']['tracker']}: {reason:.160}. The run itself is complete"
        )


def parameters(experiment: Experiment) -> dict[str, str]:
    """Return the configuration that the run uses."""
    unused = (groups().keys() - experiment.choices.keys()) | {"choices", "tracker"}
    used = {key: value for key, value in experiment.config.items() if key not in unused}
    named = {group: name for group, name in experiment.choices.items() if group != "tracker"}
    flat = {
        key: value
        for key, value in flatten(used).items()
        if value is not None and not key.endswith("._target_")
    }
    return named | {key: str(value) for key, value in flat.items()}


def list_tracked_metrics(metrics: Metrics) -> dict[str, float]:
    """Return the defined ones of scores with their intervals, recalls, the judge's accuracy, counts and costs."""
    scores = dict(metrics.scores)
    if metrics.retrieval:
        scores |= {
            f"recall_at_{budget}": score for budget, score in metrics.retrieval.recall.items()
        }
    tracked = {
        name: getattr(metrics, name)
        for name in ("questions", "failed", "answerless", "context_tokens", "seconds")
    }
    if metrics.judge:
        scores["judge_accuracy"] = metrics.judge.accuracy
        tracked["judge_unscored"] = metrics.judge.unscored
    for name, score in scores.items():
        tracked |= {name: score.mean, f"{name}_low": score.low, f"{name}_high": score.high}
    for side, cost in (("method", metrics.cost.method), ("paid", metrics.cost.paid)):
        tracked |= {f"cost_{side}_{name}": getattr(cost, name) for name in COSTS}
    return {name: float(value) for name, value in tracked.items() if value is not None}
