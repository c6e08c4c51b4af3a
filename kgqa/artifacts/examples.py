"""Examples to train models on, as `kgqa collect` keeps them: `examples.jsonl` and, with the reason, `dropped.jsonl`.

An example of a role that writes has its prompt as messages, so that any engine renders it as it does when it answers;
one of an encoder has texts. The fields are the keys of a line, in their order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from kgqa.artifacts.manifest import MANIFEST
from kgqa.artifacts.metrics import Costs
from kgqa.artifacts.schema import Artifact, Number, check_json, omit_none, read_json, read_lines
from kgqa.calls import Program
from kgqa.types import Prompt, Question
from kgqa.util.fs import text_digest
from kgqa.util.validators import Share

EXAMPLES = "examples.jsonl"
DROPPED = "dropped.jsonl"
_REMEDY = "run the kgqa collect that made it again"


@dataclass(frozen=True, slots=True)
class Origin:
    """dataset: as it is chosen. place: the step, hop or iteration, from 1. made_by: "rules", "gold" or a run's name."""

    dataset: str
    place: int
    made_by: str


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt for a role and its target, without spaces around it."""

    id: str  # like no other's of the file
    question: str  # its id
    role: str
    prompt: Prompt
    target: str
    label: str  # what it shows: an error type, "exploration", "fact"
    origin: Origin


@dataclass(frozen=True, slots=True)
class Positive:
    """A positive pair for an encoder, with negatives of the same question."""

    id: str
    question: str  # no positive of the same question is a negative of this one
    anchor: str
    positive: str
    negatives: tuple[str, ...]
    label: str  # "hop 1", "support"
    origin: Origin


@dataclass(frozen=True, slots=True)
class Dropped:
    """A question, or a part of it, that gave no example."""

    question: str
    what: str  # the whole question, or which of its parts
    why: str
    origin: Origin


Made = Example | Positive | Dropped


def read_examples(file: Path) -> Iterator[Example | Positive]:
    """Yield the examples. Raises DataError if a line is not an example; the message names line and key."""
    for place, record in read_lines(file, _REMEDY):
        kind: type[Example | Positive] = Positive if isinstance(record, dict) and "anchor" in record else Example
        yield check_json(kind, record, place, _REMEDY)


@dataclass(frozen=True, slots=True)
class Source:
    """The source of examples: a dataset's questions, or those of a finished run.

    method: as the configuration has it, since examples are asked with its prompts; of a run as it was then, None where
    the recipe takes runs alone, whose traces have the prompts.
    noise: questions that `kgqa data verify` flagged, where the recipe asks for such.
    """

    dataset: str
    questions: Sequence[Question]
    method: object | None
    run: Path | None = None
    noise: Sequence[Question] = ()


# runs the programs of a teacher by key, and returns each result, or the NotTaught that it raised
CallTeacher = Callable[[Sequence[tuple[str, Program[Any]]]], Mapping[str, Any]]


class NotTaught(Exception):
    """A teacher's program gave no example; the message is the reason."""


@dataclass(frozen=True)
class Recipe(ABC):
    """A way to make training examples: `kgqa collect NAME`. A class adds its own settings.

    sources: the default split of each dataset. Empty: the recipe uses finished runs.
    held_out: the share of questions for evaluation, which are not trained on.
    method: the class whose prompts the examples use. None: the methods of the runs.
    """

    method: ClassVar[type | None] = None

    sources: Mapping[str, str]
    held_out: Share
    seed: int

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
        return "needs questions, not runs; set dataset=NAME" if self.sources else ""

    @abstractmethod
    def collect(
        self, sources: Sequence[Source], advance: Callable[[], None], call_teacher: CallTeacher | None = None
    ) -> Iterator[Made]:
        """Yield examples in an order that depends only on sources and settings. Call `advance()` after each question.

        call_teacher: for a recipe that uses a teacher, which passes all programs at once.

        Raises:
            ConfigError: the recipe cannot use these sources.
        """

    def figures(self, sources: Sequence[Source]) -> Mapping[str, int | float]:
        """Return additional figures for the report."""
        del sources
        return {}


STAGE = "collect"  # the first word of the stage's name, the recipe is the second


class Instances(Artifact):
    """A row of SAFE's Table 7."""

    examples: int
    questions: int


class Collected(Artifact):
    """`labels`: how many examples of each label there are at each place; `held_out_labels`: of these, held out.

    question_hashes: of the questions that somebody is to be trained on, so without those held out.
    """

    recipe: str
    datasets: Mapping[str, Instances]
    labels: Mapping[str, Mapping[int, int]]
    held_out_labels: Mapping[str, int]
    held_out: tuple[str, ...]  # questions as DATASET/ID, sorted
    dropped: Mapping[str, int]  # by why
    templates: Mapping[str, str]  # the hash of each template that an example is asked with
    question_hashes: QuestionHashes
    figures: Mapping[str, Number] = {}
    made_by: Mapping[str, int] = {}  # examples by whom
    cost: Costs | None = omit_none()  # of a teacher

    @property
    def examples(self) -> int:
        return sum(row.examples for row in self.datasets.values())

    @property
    def questions(self) -> int:
        return sum(row.questions for row in self.datasets.values())


DIGITS = 16
_TRAIN_AGAIN = "train it again"


class QuestionHashes(Artifact):
    """Sorted hashes. ids: of dataset and question id. texts: of the questions' words without case and spaces.

    by_id: the hash of the words for each id; None: unknown.
    """

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    by_id: Mapping[str, str] | None = omit_none()

    @classmethod
    def of(cls, questions: Iterable[tuple[str, str, str]]) -> QuestionHashes:
        """Hash questions, each given as dataset, id and text."""
        hashes = {id_hash(dataset, question_id): text_hash(text) for dataset, question_id, text in questions}
        by_id = dict(sorted(hashes.items()))
        return cls(ids=tuple(by_id), texts=tuple(sorted({*by_id.values()})), by_id=by_id)

    def texts_of(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Return the hashes of these questions' texts, or of all texts if the pairs are unknown."""
        if self.by_id is None:
            return self.texts
        return tuple(sorted({self.by_id[id_] for id_ in ids if id_ in self.by_id}))


class TrainedWith(Artifact):
    """The hashes of the questions of training, and of the templates that the examples used."""

    question_hashes: tuple[str, ...]
    text_hashes: tuple[str, ...]
    templates: Mapping[str, str] = {}


def training_of(folder: Path) -> TrainedWith | None:
    """Read the manifest in a folder of an adapter or encoder, or next to it. Return None if kgqa did not train it.

    Raises:
        DataError: the manifest is damaged.
    """
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
    """Hash the words of a question: benchmarks reuse questions of each other under other ids."""
    return text_digest(" ".join(text.casefold().split()), DIGITS)
