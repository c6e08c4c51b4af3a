"""What a tracker is told of a training: its settings, figures, curves and files. It can fail; the weights are there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kgqa.artefacts.manifest import MANIFEST
from kgqa.artefacts.trained import CARD, Trained
from kgqa.errors import TrackerError
from kgqa.experiment.run.tracking import LONGEST, chosen_tracker
from kgqa.experiment.train.request import TrainRequest
from kgqa.protocols import TrackedRun
from kgqa.redaction import without_secrets
from kgqa.training.curves import CURVES

FILES = ("report.html", CARD, CURVES, "losses.svg", MANIFEST)


def track(
    request: TrainRequest, trained: Trained, folder: Path, series: Mapping[str, tuple[tuple[int, float], ...]]
) -> str | None:
    """Tell the tracker, if one is chosen, and give the line that says where; a failure is such a line, too."""
    tracker = chosen_tracker(request.config)
    if tracker is None:
        return None
    parameters = {key: without_secrets(value)[:LONGEST] for key, value, _ in trained.settings}
    files = tuple(file for name in FILES if (file := folder / name).is_file())
    told = TrackedRun(f"train/{trained.name}/{folder.name}", parameters, figures(trained), files, series)
    try:
        return f"tracked: {tracker.log(told)}"
    except TrackerError as error:
        reason = " ".join(without_secrets(error).split())
        return (
            f"warning: tracker={request.config['choices']['tracker']}: {reason:.160}; the training itself is complete"
        )


def figures(trained: Trained) -> dict[str, float]:
    """What is defined."""
    losses = trained.losses
    numbers: dict[str, float | None] = {
        "loss_first": losses.first, "loss_last": losses.last, "loss_lowest": losses.lowest,
        "held_out_loss_before": losses.held_out_before, "held_out_loss_after": losses.held_out_after,
        "steps": trained.steps, "tokens": trained.tokens, "seconds": trained.seconds,
        "peak_memory": trained.peak_memory, "trainable": trained.trainable,
    }  # fmt: skip
    for row in trained.measured:
        name = "".join(letter if letter.isalnum() else "_" for letter in row.name)
        numbers |= {f"{name}_before": row.before, f"{name}_after": row.after, f"{name}_low": row.low,
                    f"{name}_high": row.high}  # fmt: skip
    return {name: float(value) for name, value in numbers.items() if value is not None}
