"""`manifest.json` of what was trained: what it was made of, with what, and what came of it. Nothing in it is secret.

It is written last: a folder without one is a training that has not ended.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kgqa.artifacts.manifest import MANIFEST, Code
from kgqa.artifacts.run import Setting
from kgqa.artifacts.schema import Artifact, Number, omit_none, read
from kgqa.errors import ConfigError, DataError, nearest
from kgqa.util.fs import explain_storage_errors, training_folder

CARD = "README.md"
SETTINGS = "settings.json"  # what a trainer is told: a folder with it was begun
_TICK = 1_000_000  # nanoseconds: less may be lost on the way to a disk


class TrainedExamples(Artifact):
    """`hashes`, `held_out`: of ids and, where they are known, texts of the questions, see `artefacts.question_hashes`.

    sha256: of the texts that were trained on, as they were rendered.
    """

    collected: str | None  # the folder of `kgqa collect`; None: a file of rendered texts
    made_of: tuple[str, ...]  # data sets
    sha256: str
    count: int
    questions: int
    left_out: int  # longer than the longest
    cut: int
    held_out_count: int
    held_out: tuple[str, ...]
    question_hashes: tuple[str, ...]
    text_hashes: tuple[str, ...]
    templates: Mapping[str, str]  # the hash of each that an example was asked with
    licences: tuple[str, ...]


class Losses(Artifact):
    """Nats a label."""

    first: Number | None
    last: Number | None  # the mean over the last tenth of the steps
    lowest: Number | None
    held_out_before: Number | None
    held_out_after: Number | None


class Measured(Artifact):
    """A figure of the held-out examples; the difference with its 95 % paired bootstrap interval."""

    name: str
    before: Number
    after: Number
    difference: Number
    low: Number
    high: Number
    n: int
    percent: bool = True


class Trained(Artifact):
    """`base_sha256`: of the weights as the preset has them; `base_folder_sha256`: as they were trained on."""

    name: str
    kind: str  # LoraTraining, Seq2SeqTraining, BiEncoderTraining
    title: str
    recipe: str  # the choice of conf/train
    settings: tuple[Setting, ...]
    command: tuple[str, ...]
    base: str
    base_sha256: str
    base_folder_sha256: str
    base_licence: str | None
    template_sha256: str | None = omit_none()  # of the base's chat template
    rank: int | None = omit_none()
    weights: Mapping[str, str]  # the sha256 of each file
    examples: TrainedExamples
    seed: int
    precision: str
    steps: int
    epochs: Number
    tokens: int
    seconds: Number
    peak_memory: int  # bytes
    trainable: int
    parameters: int
    device: str
    processes: int
    losses: Losses
    measured: tuple[Measured, ...]
    baselines: Mapping[str, Number] = {}
    kgqa: Code
    versions: Mapping[str, str]

    @classmethod
    def read(cls, folder: Path) -> Trained:
        """Raise DataError: its training has not ended, or the file is damaged; the key is named."""
        missing = "no such file, so no training has ended here; kgqa models trained lists the finished ones"
        return read(cls, folder / MANIFEST, missing=missing, remedy="train it again")


@dataclass(frozen=True, slots=True)
class KeptTraining:
    """`name`: as it can be typed, NAME/HASH. `ended`: its manifest is there."""

    folder: Path
    name: str
    written: float
    ended: bool


def list_trainings() -> list[KeptTraining]:
    """Return the trainings in the folder of trained models, newest first."""
    return sorted(_kept(), key=lambda kept: (-kept.written, kept.name))


def finished(name: str) -> list[Path]:
    """Return what a name means, the last one first: all of NAME that have ended, or the one of NAME/HASH or of a
    folder.
    """
    for folder in (training_folder() / name, Path(name).expanduser()):
        if (folder / MANIFEST).is_file():
            return [folder]
        if found := [file.parent for file in folder.glob(f"*/{MANIFEST}")]:
            return sorted(found, key=_read_time, reverse=True)
    return []


def find_trained(name: str) -> Path:
    """Return the folder that a person means.

    Raises:
        ConfigError: there is none.
    """
    if found := finished(name):
        return found[0]
    refuse_begun(name)
    known = {kept.name.rpartition("/")[0] for kept in list_trainings() if kept.ended}
    hint = nearest(name, known) if known else f"nothing is trained in {training_folder()}; begin with kgqa train --help"
    raise ConfigError(f"{name}: nothing trained of that name; {hint}")


def prefer(folder: Path) -> None:
    """What is trained there is from now on what its name means: it counts as the last one."""
    with explain_storage_errors(folder):
        others = max(file.stat().st_mtime_ns for file in folder.parent.glob(f"*/{MANIFEST}"))
        now = max(time.time_ns(), others + _TICK)  # what was written a moment ago may bear this very time
        os.utime(folder / MANIFEST, ns=(now, now))


def refuse_begun(name: str) -> None:
    """Raise ConfigError: trainings of that name were begun."""
    for folder in (training_folder() / name, Path(name).expanduser()):
        if (folder / SETTINGS).is_file() or any(folder.glob(f"*/{SETTINGS}")):
            raise ConfigError(f"{name}: its training has not ended; run its command again")


def _read_time(folder: Path) -> tuple[int, str]:
    return (folder / MANIFEST).stat().st_mtime_ns, folder.name


def _kept() -> Iterator[KeptTraining]:
    root = training_folder()
    for settings in root.rglob(SETTINGS):
        folder = settings.parent
        manifest = folder / MANIFEST
        try:
            written = (manifest if manifest.is_file() else settings).stat().st_mtime
        except OSError as error:
            raise DataError(f"{folder}: {error.strerror}; run the command again") from error
        yield KeptTraining(folder, folder.relative_to(root).as_posix(), written, manifest.is_file())
