"""`manifest.json` of what was trained: what it was made of, with what, and what came of it. Nothing in it is secret.

It is written last: a folder without one is a training that has not ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kgqa.artefacts.form import LEFT_OUT, Number, as_json, read
from kgqa.artefacts.manifest import MANIFEST, Code
from kgqa.artefacts.run import Setting
from kgqa.errors import ConfigError, DataError, nearest
from kgqa.storage import trained
from kgqa.types import Json

CARD = "README.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedExamples:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Nats a label."""

    first: Number | None
    last: Number | None  # the mean over the last tenth of the steps
    lowest: Number | None
    held_out_before: Number | None
    held_out_after: Number | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A figure of the held-out examples; the difference with its 95 % paired bootstrap interval."""

    name: str
    before: Number
    after: Number
    difference: Number
    low: Number
    high: Number
    n: int
    percent: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """`base_sha256`: of the weights as the preset has them; `base_folder_sha256`: as they were trained on."""

    name: str
    kind: str  # LoraTraining, Seq2SeqTraining, BiEncoderTraining
    recipe: str  # the choice of conf/train
    settings: tuple[Setting, ...]
    command: tuple[str, ...]
    base: str
    base_sha256: str
    base_folder_sha256: str
    base_licence: str | None
    template_sha256: str | None = field(default=None, metadata=LEFT_OUT)  # of the base's chat template
    rank: int | None = field(default=None, metadata=LEFT_OUT)
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
    baselines: Mapping[str, Number] = field(default_factory=dict)
    kgqa: Code
    versions: Mapping[str, str]

    @classmethod
    def read(cls, folder: Path) -> Trained:
        """Raises DataError: its training has not ended, or the file is damaged; the key is named."""
        missing = "no such file, so no training has ended here; kgqa trained lists those that have"
        return read(cls, folder / MANIFEST, missing=missing, remedy="train it again")

    def json(self) -> dict[str, Json]:
        written: dict[str, Json] = as_json(self)
        return written


@dataclass(frozen=True, slots=True)
class KeptTraining:
    """`name`: as it can be typed, NAME/HASH. `ended`: its manifest is there."""

    folder: Path
    name: str
    written: float
    ended: bool


def kept_trainings() -> list[KeptTraining]:
    """Those in `storage.trained()`, the last one first."""
    return sorted(_kept(), key=lambda kept: (-kept.written, kept.name))


def find_trained(text: str) -> Path:
    """The folder that a person means: a path, a name (its newest finished training), or NAME/HASH.

    Raises:
        ConfigError: there is none.
    """
    given = Path(text)
    if (given / MANIFEST).is_file():
        return given
    known = kept_trainings()
    fitting = [kept for kept in known if text in (kept.name, kept.name.rpartition("/")[0])]
    ended = [kept for kept in fitting if kept.ended]
    if ended:
        return ended[0].folder
    if fitting:
        raise ConfigError(f"{text}: its training has not ended; run its command again")
    names = {kept.name.rpartition("/")[0] for kept in known if kept.ended}
    hint = nearest(text, names) if names else f"nothing is trained in {trained()}; begin with kgqa train --help"
    raise ConfigError(f"{text}: nothing trained of that name; {hint}")


def _kept() -> Iterator[KeptTraining]:
    root = trained()
    for settings in root.rglob("settings.json"):
        folder = settings.parent
        manifest = folder / MANIFEST
        try:
            written = (manifest if manifest.is_file() else settings).stat().st_mtime
        except OSError as error:
            raise DataError(f"{folder}: {error.strerror}; run the command again") from error
        yield KeptTraining(folder, folder.relative_to(root).as_posix(), written, manifest.is_file())
