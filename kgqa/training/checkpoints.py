"""Checkpoints: which are whole, and which a crash or a disk has damaged."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

from kgqa.artefacts.form import read_json
from kgqa.errors import DataError
from kgqa.storage import json_text, replace_file, sha256

MARK = "whole.json"  # written last: the sha256 of each file
KEPT = 2


def mark(checkpoint: Path) -> None:
    """Say that a checkpoint is whole. Raises StorageError: the disk is full or refuses."""
    files = sorted(file for file in checkpoint.rglob("*") if file.is_file() and file.name != MARK)
    replace_file(checkpoint / MARK, json_text({str(file.relative_to(checkpoint)): sha256(file) for file in files}))


def newest(folder: Path, tell: Callable[[str], None]) -> Path | None:
    """The newest whole checkpoint; those that are not give way. `tell` gets a line for each that was damaged later."""
    for checkpoint in checkpoints(folder):
        flaw = _flaw(checkpoint)
        if flaw is None:
            return checkpoint
        if flaw:
            tell(f"{checkpoint}: damaged ({flaw}); the one before it is taken")
        shutil.rmtree(checkpoint)
    return None


def checkpoints(folder: Path) -> list[Path]:
    """The newest first."""
    found = [path for path in folder.glob("checkpoint-*") if re.fullmatch(r"checkpoint-\d+", path.name)]
    return sorted(found, key=step_of, reverse=True)


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.partition("-")[2])


def _flaw(checkpoint: Path) -> str | None:
    """What is wrong with it; "" where it was never finished, None for nothing."""
    file = checkpoint / MARK
    if not file.is_file():
        return ""
    try:
        hashes = read_json(file)
    except DataError:
        return f"{MARK} is not readable"
    for name, expected in hashes.items():
        if not (checkpoint / name).is_file():
            return f"{name} is gone"
        if sha256(checkpoint / name) != expected:
            return f"{name} has another sha256"
    return None
