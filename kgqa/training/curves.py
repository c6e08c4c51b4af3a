"""The curves of a training, from what its trainer said: loss, held-out loss and learning rate by step."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from kgqa.artefacts.form import Number
from kgqa.training.progress import told

CURVES = "losses.csv"


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """`held_out_loss`: where it was measured; step 0 is before the training."""

    step: int
    epoch: Number | None
    loss: Number | None
    held_out_loss: Number | None
    learning_rate: Number | None
    tokens: int | None
    seconds: Number | None


def curve(folder: Path) -> list[CurvePoint]:
    """By step; empty where nothing was trained yet."""
    said = told(folder)
    held_out = {line.step: line.loss for line in said if line.event == "held_out"}
    steps = {line.step: line for line in said if line.event == "step"}
    return [
        CurvePoint(
            step,
            line.epoch if line else None,
            line.loss if line else None,
            held_out.get(step),
            line.learning_rate if line else None,
            line.tokens if line else None,
            line.seconds if line else None,
        )
        for step, line in sorted((step, steps.get(step)) for step in {*steps, *held_out})
    ]


def curve_csv(points: Sequence[CurvePoint]) -> str:
    names = [field.name for field in fields(CurvePoint)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(["" if (value := getattr(point, name)) is None else value for name in names] for point in points)
    return text.getvalue()


def series(points: Sequence[CurvePoint]) -> dict[str, tuple[tuple[int, float], ...]]:
    """By name (step, value), for a tracker."""
    named = ("loss", "held_out_loss", "learning_rate")
    values = {name: [(point.step, getattr(point, name)) for point in points] for name in named}
    return {
        name: tuple((step, float(value)) for step, value in pairs if value is not None)
        for name, pairs in values.items()
        if any(value is not None for _, value in pairs)
    }
