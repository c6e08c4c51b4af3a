"""Trained weights for other programs (merged, or GGUF), and whether a training's files are complete."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from kgqa.artifacts.manifest import MANIFEST
from kgqa.artifacts.schema import read_json
from kgqa.artifacts.trained import Trained, list_trainings
from kgqa.engines.gguf_header import read_header
from kgqa.engines.weights import is_gguf
from kgqa.errors import ConfigError, DataError, EngineDied
from kgqa.runtime.display import Display
from kgqa.system.adapters import find_adapter
from kgqa.system.hardware import GB
from kgqa.training.train.request import Base
from kgqa.training.trainers.gguf_adapter import Attention, write_gguf
from kgqa.training.trainers.lora import LoraTraining
from kgqa.training.trainers.task import CHECKPOINTS, EXAMPLES, HELD_OUT, LOCK, TRAIN
from kgqa.util.fs import explain_storage_errors, is_locked, sha256, text_digest
from kgqa.util.terminal_text import one_line
from kgqa.util.text import pluralize

ADAPTER = LoraTraining.output
MERGED = "merged"


def export_merged(folder: Path, out: Path | None, display: Display) -> Path:
    """Write base and adapter as one transformers folder.

    Raises:
        ConfigError: the folder has no adapter, or the target exists.
        DataError: the base has changed since the training.
        EngineDied: the process that merges crashed.
    """
    trained, target = Trained.read(folder), out or folder / MERGED
    if not (folder / ADAPTER).is_dir():
        raise ConfigError(f"{folder}: these are complete weights, not an adapter; use them as they are")
    if target.exists():
        raise ConfigError(f"{target}: already exists; remove it or set --out")
    source = _base(trained).folder(display.line)
    display.line(f"merging {trained.name} into {trained.base}")
    command = [sys.executable, "-m", "kgqa.training.trainers.merging", str(source), str(folder / ADAPTER), str(target)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ourselves
    if process.returncode:
        lines = process.stderr.strip().splitlines() or [f"exit code {process.returncode}, no message"]
        raise EngineDied(f"merging failed: {one_line(lines[-1])[:200]}")
    return target


def export_gguf(name: str, out: Path | None) -> Path:
    """Write an adapter, trained here or elsewhere, as llama.cpp reads it.

    Raises:
        ConfigError: there is no such adapter, or its base is unknown, missing or of another architecture.
        DataError: its file is damaged.
    """
    found = find_adapter(name)
    preset, _ = found.trained_on()
    if preset is None:
        raise ConfigError(f"adapter {name}: its base is not known; name it in conf/adapter")
    own = (found.folder.parent / MANIFEST).is_file()
    base = _base(Trained.read(found.folder.parent)) if own else Base.of(preset, is_encoder=False)
    assert base.model is not None
    weights = base.model.locate()
    if is_gguf(weights):
        attention = Attention.of_header(read_header(weights))
    else:
        config = read_json(weights / "config.json", remedy="get the model's folder again")
        attention = Attention.of_config(config if isinstance(config, dict) else {})
    target = out or found.gguf
    write_gguf(found, attention, target)
    return target


def _base(trained: Trained) -> Base:
    """Return the base as it was chosen. Raises DataError: its weights have changed."""
    choice = {key: value for key, value, _ in trained.settings}.get("train.base", trained.base)
    base = Base.of(choice.strip("'"), is_encoder=False)
    if base.digest() != trained.base_sha256:
        raise DataError(
            f"{trained.base}: its weights are {base.digest()[:12]} now, {trained.name} was trained on "
            f"{trained.base_sha256[:12]}; get those again"
        )
    return base


def find_damage(folder: Path) -> Iterator[str]:
    """Yield a line for each file that is missing or differs from the manifest. Raises DataError: there is none."""
    trained = Trained.read(folder)
    for name, expected in trained.weights.items():
        file = folder / name
        if not file.is_file():
            yield f"{file}: missing"
        elif sha256(file) != expected:
            yield f"{file}: has another sha256 than after training"
    files = [folder / EXAMPLES / name for name in (TRAIN, HELD_OUT)]
    if not all(file.is_file() for file in files):
        yield f"{folder / EXAMPLES}: the examples are missing"
    elif text_digest("\n".join(file.read_text(encoding="utf-8") for file in files)) != trained.examples.sha256:
        yield f"{folder / EXAMPLES}: not the examples of the training"


def remove_checkpoints() -> str:
    """Remove the checkpoints of all finished trainings, and return a line with the space that this frees."""
    size, count = 0, 0
    for training in list_trainings():
        checkpoints = training.folder / CHECKPOINTS
        if training.ended and checkpoints.is_dir() and not is_locked(training.folder / LOCK):
            size += sum(file.stat().st_size for file in checkpoints.rglob("*") if file.is_file())
            count += 1
            with explain_storage_errors(checkpoints):
                shutil.rmtree(checkpoints)
    return f"checkpoints of {pluralize(count, 'training')} removed: {size / GB:.2f} GB"
