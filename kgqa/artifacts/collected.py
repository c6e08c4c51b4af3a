"""The outcome of `kgqa collect`, in the manifest of a folder of examples."""

from __future__ import annotations

from collections.abc import Mapping

from kgqa.artifacts.metrics import Costs
from kgqa.artifacts.question_hashes import QuestionHashes
from kgqa.artifacts.schema import Artifact, Number, omit_none

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
