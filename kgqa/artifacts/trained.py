"""`manifest.json` of a training: its data, settings and results. A folder without one is not finished."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kgqa.artifacts.manifest import MANIFEST, Code
from kgqa.artifacts.metrics import UNDEFINED, Estimate
from kgqa.artifacts.run import SETTINGS, RunEntry, Setting, list_folders
from kgqa.artifacts.schema import Artifact, Count, Number, omit_none, read
from kgqa.errors import ConfigError, DataError, nearest
from kgqa.util.places import training_folder

CARD = "README.md"
# folders of weights, next to that of an adapter
MODEL, ENCODER = "model", "encoder"


class TrainedExamples(Artifact):
    """The examples. Hashes are those of `artifacts.examples`."""

    # the folder of `kgqa collect`. None: a file of rendered texts
    collected: str | None
    made_of: tuple[str, ...]  # datasets
    sha256: str  # of the rendered texts
    count: Count
    questions: Count
    left_out: Count  # too long
    cut: Count
    held_out_count: Count
    question_hashes: tuple[str, ...]
    text_hashes: tuple[str, ...]
    templates: Mapping[str, str]  # their hashes
    licences: tuple[str, ...]


class Losses(Artifact):
    """Losses in nats per label."""

    first: Number | None
    # mean over the last tenth of the steps
    last: Number | None
    held_out_before: Number | None
    held_out_after: Number | None


class TrainFigures(Artifact):
    steps: Count
    epochs: Number
    tokens: Count
    seconds: Number
    peak_memory: Count  # bytes
    trainable: Count
    parameters: Count
    device: str
    processes: Count
    versions: Mapping[str, str]


class Trained(TrainFigures):
    """A training. `base_sha256`: of the preset's weights. `base_folder_sha256`: of the folder that was trained."""

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
    rank: Count | None = omit_none()
    weights: Mapping[str, str]  # the sha256 of each file
    examples: TrainedExamples
    seed: Count
    precision: str
    losses: Losses
    # figures of the replies to held-out prompts, in percent
    measured: Mapping[str, Estimate]
    baselines: Mapping[str, Number] = {}
    kgqa: Code

    @classmethod
    def read(cls, folder: Path) -> Trained:
        """Read a manifest. Raises DataError if the training is not finished or the file is damaged."""
        missing = "no such file, so this is not the folder of a finished training. List trainings: kgqa models trained"
        return read(cls, folder / MANIFEST, missing=missing, remedy="Train it again.")


def list_trainings() -> list[RunEntry]:
    """Return the trainings in the folder of trained models, newest first. Their names are NAME/HASH."""
    return list_folders(training_folder(), "**", MANIFEST, SETTINGS)


def finished(name: str) -> list[Path]:
    """Return the finished trainings of NAME, newest first, or the one of NAME/HASH or of a folder."""
    for folder in (training_folder() / name, Path(name).expanduser()):
        if (folder / MANIFEST).is_file():
            return [folder]
        if manifests := list(folder.glob(f"*/{MANIFEST}")):
            newest = sorted(
                manifests, key=lambda file: (file.stat().st_mtime_ns, file), reverse=True
            )
            return [file.parent for file in newest]
    return []


def is_finished(folder: Path) -> bool:
    """Return whether the folder has a readable manifest."""
    try:
        Trained.read(folder)
    except DataError:
        return False
    return True


def find_trained(name: str) -> Path:
    """Return the folder of the newest training of this name. Raises ConfigError if there is none."""
    if trainings := finished(name):
        return trainings[0]
    names = {training.name.rpartition("/")[0] for training in list_trainings() if training.ended}
    hint = (
        nearest(name, names)
        if names
        else f"No trained models in {training_folder()}. See kgqa train --help"
    )
    raise ConfigError(f"{name}: no trained model has this name. {hint}")


BOOTSTRAP = "bootstrap"


class Round(Artifact):
    """A round of a bootstrap. Round 0 is the base model.

    filtered: KnowTrace's FA (Figure 4), the percentage of the tokens of right answers that backtracing removes.
    """

    number: Count
    dev: str  # the run that evaluates it
    em: Estimate
    f1: Estimate
    # with the answers it was trained on
    run: str | None = None
    asked: Count = 0  # questions of that run
    right: Count = 0  # right answers among them
    filtered: Estimate = UNDEFINED
    # folders of `kgqa collect` by role
    examples: Mapping[str, str] = {}
    kept: Mapping[str, Count] = {}  # number of examples by role
    adapters: Mapping[str, str] = {}  # by role, as in roles.ROLE=+NAME


class Rounds(Artifact):
    """All rounds of a bootstrap."""

    title: str
    filter: str
    rounds: tuple[Round, ...]
