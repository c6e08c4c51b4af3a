"""Log a finished run to a tracker. A failure is a warning, because the run is already saved."""

from __future__ import annotations

from pathlib import Path

from kgqa.artifacts.manifest import MANIFEST
from kgqa.artifacts.metrics import METRICS, Metrics
from kgqa.artifacts.predictions import PREDICTIONS
from kgqa.artifacts.schema import Number
from kgqa.config import factories as parts
from kgqa.config.files import Config, flatten, groups
from kgqa.errors import TrackerError
from kgqa.experiment.session.experiment import Experiment
from kgqa.protocols import TrackedRun, Tracker
from kgqa.util.redaction import redact

FILES = ("report.html", "report.md", METRICS, MANIFEST, "config.yaml", PREDICTIONS)
LONGEST = 500  # characters of a parameter; trackers cut or refuse longer ones


def choose_tracker(config: Config) -> Tracker | None:
    """Raise ConfigError naming what is wrong with it, or the extra that is not installed."""
    if config.get("tracker") is None:
        return None
    tracker = parts.tracker(config["tracker"])
    tracker.check()
    return tracker


def track(experiment: Experiment, folder: Path, metrics: Metrics) -> str | None:
    """Tell the tracker, if one is chosen, and give the line that says where; a failure is such a line, too."""
    tracker = choose_tracker(experiment.config)
    if tracker is None:
        return None
    files = tuple(file for name in FILES if (file := folder / name).is_file())
    name = "/".join([experiment.name("dataset"), experiment.name("method"), folder.name])
    try:
        return f"tracked: {tracker.log(TrackedRun(name, parameters(experiment), list_tracked_metrics(metrics), files))}"
    except TrackerError as error:
        reason = " ".join(redact(error).split())
        return f"warning: tracker={experiment.name('tracker')}: {reason:.160}; the run itself is complete"


def parameters(experiment: Experiment) -> dict[str, str]:
    """Return the resolved configuration, of what the run made use of; addresses without the credentials they may
    hold.
    """
    unused = (groups().keys() - experiment.choices.keys()) | {"choices", "tracker"}
    used = {key: value for key, value in experiment.config.items() if key not in unused}
    named = {group: name for group, name in experiment.choices.items() if group != "tracker"}
    flat = {key: value for key, value in flatten(used).items() if value is not None and not key.endswith("._target_")}
    return {key: redact(value)[:LONGEST] for key, value in (named | flat).items()}


def list_tracked_metrics(metrics: Metrics) -> dict[str, float]:
    """Return scores with the ends of their intervals, recalls, the judge's accuracy, counts and costs; what is
    defined.
    """
    scores = metrics.scores.named()
    if metrics.retrieval:
        scores |= {f"recall_at_{budget}": score for budget, score in metrics.retrieval.recall.items()}
    if metrics.judge:
        scores["judge_accuracy"] = metrics.judge.accuracy
    tracked: dict[str, Number | None] = {
        "questions": metrics.questions,
        "failed": metrics.failed,
        "answerless": metrics.answerless,
        "context_tokens": metrics.context_tokens,
        "seconds": metrics.seconds,
        "judge_unscored": metrics.judge.unscored if metrics.judge else None,
    }
    for name, score in scores.items():
        tracked |= {name: score.mean, f"{name}_low": score.low, f"{name}_high": score.high}
    for side, cost in (("method", metrics.cost.method), ("paid", metrics.cost.paid)):
        tracked |= {
            f"cost_{side}_calls": cost.calls,
            f"cost_{side}_prompt_tokens": cost.prompt_tokens,
            f"cost_{side}_output_tokens": cost.output_tokens,
            f"cost_{side}_reasoning_tokens": cost.reasoning_tokens,
            f"cost_{side}_seconds": cost.seconds,
            f"cost_{side}_usd": cost.usd,
        }
    return {name: float(value) for name, value in tracked.items() if value is not None}
