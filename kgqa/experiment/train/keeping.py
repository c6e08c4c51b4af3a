"""What was trained, as it lies on disk: whether it is whole, and what of it can go."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from kgqa.artefacts.trained import Trained, kept_trainings
from kgqa.counting import counted
from kgqa.experiment.machine.hardware import GB
from kgqa.storage import in_use, sha256, storing, text_digest
from kgqa.training.job import CHECKPOINTS, EXAMPLES, HELD_OUT, LOCK, TRAIN


def flaws(folder: Path) -> list[str]:
    """A line for each file that is gone or another one than the manifest says. Raises DataError: it has none."""
    return list(_flaws(folder, Trained.read(folder)))


def prune() -> str:
    """Remove the checkpoints of all trainings that have ended; gives a line that says what that came to."""
    freed, count = 0, 0
    for kept in kept_trainings():
        checkpoints = kept.folder / CHECKPOINTS
        if not kept.ended or not checkpoints.is_dir() or in_use(kept.folder / LOCK):
            continue
        freed += sum(file.stat().st_size for file in checkpoints.rglob("*") if file.is_file())
        count += 1
        with storing(checkpoints):
            shutil.rmtree(checkpoints)
    return f"checkpoints of {counted(count, 'training')} removed: {freed / GB:.2f} GB"


def _flaws(folder: Path, trained: Trained) -> Iterator[str]:
    for name, expected in trained.weights.items():
        file = folder / name
        if not file.is_file():
            yield f"{file}: gone"
        elif sha256(file) != expected:
            yield f"{file}: another sha256 than when it was trained"
    files = [folder / EXAMPLES / name for name in (TRAIN, HELD_OUT)]
    if not all(file.is_file() for file in files):
        yield f"{folder / EXAMPLES}: the examples are gone"
    elif text_digest("\n".join(file.read_text(encoding="utf-8") for file in files)) != trained.examples.sha256:
        yield f"{folder / EXAMPLES}: other examples than it was trained on"
