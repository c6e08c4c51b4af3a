"""Training examples of `kgqa collect`: `examples.jsonl` and, with reasons, `dropped.jsonl`.

The fields are the keys of a line in order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

from kgqa.artifacts.manifest import MANIFEST, Identity, Provenance
from kgqa.artifacts.schema import Artifact, Count, Number, check_json, read, read_json, read_lines
from kgqa.errors import DataError
from kgqa.types import JsonObject, Prompt, Question
from kgqa.util.digests import text_digest
from kgqa.util.fs import sha256
from kgqa.util.settings import Setting
from kgqa.util.validators import Share

EXAMPLES = "examples.jsonl"
DROPPED = "dropped.jsonl"
_REMEDY = "Run its kgqa collect command again."


@dataclass(frozen=True, slots=True)
class ExampleOrigin:
    """place: the step, hop or iteration, from 1. made_by: "rules", "gold" or the name of a run."""

    dataset: str
    place: Count
    made_by: str


@dataclass(frozen=True, slots=True)
class TrainingExample:
    """A prompt for a role, with the reply to learn."""

    id: str  # unique in the file
    question: str  # its id
    role: str
    prompt: Prompt
    target: str  # without spaces at its ends
    # such as an error type, "exploration", "fact"
    label: str
    origin: ExampleOrigin


@dataclass(frozen=True, slots=True)
class Positive:
    """A positive pair for an encoder, with negatives of the same question."""

    id: str
    # its id. Positives of a question are not negatives of each other
    question: str
    anchor: str
    positive: str
    negatives: tuple[str, ...]
    label: str  # such as "hop 1", "support"
    origin: ExampleOrigin


@dataclass(frozen=True, slots=True)
class Dropped:
    """A question, or a part of it, that gave no example."""

    question: str
    # the question or one of its parts
    what: str
    why: str
    origin: ExampleOrigin


Made = TrainingExample | Positive | Dropped


def read_examples(file: Path) -> Iterator[TrainingExample | Positive]:
    """Yield the examples. Raises DataError if a line is not an example."""
    for place, record in read_lines(file, _REMEDY):
        kind: type[TrainingExample | Positive] = (
            Positive if isinstance(record, dict) and "anchor" in record else TrainingExample
        )
        yield check_json(kind, record, place, _REMEDY)


@dataclass(frozen=True, slots=True)
class ExampleSource:
    """The questions of a dataset or of a finished run.

    method: the method with the prompts, as configured or as in the run. None: the recipe uses the traces of runs only.
    noise: flagged questions, if the recipe uses them. words: the overrides that select `questions`.
    """

    dataset: str
    questions: Sequence[Question]
    method: object | None
    run: Path | None = None
    noise: Sequence[Question] = ()
    words: tuple[str, ...] = ()


# the role of the model that writes examples
TEACHER = "teacher"
# runs a teacher with these overrides, and returns its notes on each question
CallTeacher = Callable[[Sequence[str]], Mapping[str, JsonObject]]


@dataclass(frozen=True)
class Recipe(ABC):
    """A way to make training examples: `kgqa collect NAME`. A class adds its own settings.

    sources: the default split of each dataset. Empty: the recipe uses finished runs.
    held_out: the share of questions for evaluation.
    method: the class whose prompts the examples use. None: the methods of the runs.
    """

    method: ClassVar[type | None] = None

    sources: Annotated[
        Mapping[str, str],
        Setting(
            "Training questions, if dataset= is not set. The released code trains one encoder per dataset."
        ),
    ] = field(default_factory=lambda: {"hotpotqa": "train", "musique": "train"})
    held_out: Annotated[
        Share, Setting("Share of examples that are held out.", ours="our choice")
    ] = 0.1
    seed: Annotated[
        int,
        Setting("Random seed of the negatives and of the held-out examples.", ours="our choice"),
    ] = field(kw_only=True)

    @property
    def uses_teacher(self) -> bool:
        """Return whether it calls a model with the role `teacher`."""
        return False

    @property
    def uses_noise(self) -> bool:
        """Return whether it needs flagged questions."""
        return False

    @property
    def no_runs(self) -> str:
        """Return why it cannot use finished runs, or "" if it can."""
        return "needs questions, not runs: set dataset=NAME" if self.sources else ""

    @abstractmethod
    def collect(
        self, sources: Sequence[ExampleSource], call_teacher: CallTeacher
    ) -> Iterator[Made]:
        """Yield examples in a deterministic order.

        call_teacher: runs the method of a teacher, if the recipe uses one.
        """

    def figures(self, sources: Sequence[ExampleSource]) -> Mapping[str, int | float]:
        """Return additional figures for the report."""
        del sources
        return {}


class Instances(Artifact):
    """A row of SAFE's Table 7."""

    examples: Count
    questions: Count


class Collected(Artifact):
    """`labels`: number of examples by label. `held_out_labels`: those of them that are held out.

    question_hashes: hashes of texts by hashes of ids, without held-out questions, see `hash_questions`.
    """

    recipe: str
    datasets: Mapping[str, Instances]
    labels: Mapping[str, Count]
    held_out_labels: Mapping[str, Count]
    held_out: tuple[str, ...]  # questions as DATASET/ID, sorted
    dropped: Mapping[str, Count]  # by reason
    # the hashes of the examples' templates
    templates: Mapping[str, str]
    question_hashes: Mapping[str, str]
    figures: Mapping[str, Number] = {}
    made_by: Mapping[str, Count] = {}  # number of examples
    teacher: tuple[str, ...] = ()  # its runs

    @property
    def examples(self) -> int:
        return sum(row.examples for row in self.datasets.values())

    @property
    def questions(self) -> int:
        return sum(row.questions for row in self.datasets.values())


class CollectManifest(Collected):
    """`manifest.json` of a folder of `kgqa collect`. identity: everything that can change the examples."""

    origin: Provenance
    identity: Identity
    sha256: str  # of the examples

    @classmethod
    def read(cls, folder: Path) -> CollectManifest:
        """Read the manifest. Raises DataError: the folder is not finished, is damaged, or its examples were changed."""
        missing = "no such file, so this is not the folder of a finished kgqa collect. Name the folder that it printed."
        manifest = read(cls, folder / MANIFEST, missing=missing)
        file = folder / EXAMPLES
        if not file.is_file() or sha256(file) != manifest.sha256:
            state = "changed since it was written" if file.is_file() else "no such file"
            raise DataError(
                f"{file}: {state}. Run the command that made it again: {' '.join(manifest.origin.command)}"
            )
        return manifest


DIGITS = 16
_TRAIN_AGAIN = "Train it again."


def hash_questions(questions: Iterable[tuple[str, str, str]]) -> dict[str, str]:
    """Hash questions, each as dataset, id and text. Return the hash of the text by the hash of the id, sorted."""
    return dict(
        sorted((id_hash(dataset, id_), text_hash(text)) for dataset, id_, text in questions)
    )


class TrainedWith(Artifact):
    """The hashes of the questions of training, and of the templates that the examples used."""

    question_hashes: tuple[str, ...]
    text_hashes: tuple[str, ...]
    templates: Mapping[str, str] = {}


def training_of(folder: Path) -> TrainedWith | None:
    """Read the manifest in or next to the folder of an adapter or encoder. Return None if kgqa did not train it."""
    for place in (folder, folder.parent):
        file = place / MANIFEST
        manifest = read_json(file, remedy=_TRAIN_AGAIN) if file.is_file() else None
        if isinstance(manifest, dict) and isinstance(manifest.get("examples"), dict):
            return check_json(TrainedWith, manifest["examples"], f"{file}: examples", _TRAIN_AGAIN)
    return None


def id_hash(dataset: str, question_id: str) -> str:
    """Hash a question's id within its dataset."""
    return text_digest(f"{dataset}\n{question_id}", DIGITS)


def text_hash(text: str) -> str:
    """Hash the words of a question, because benchmarks share questions under different ids."""
    return text_digest(" ".join(text.casefold().split()), DIGITS)
