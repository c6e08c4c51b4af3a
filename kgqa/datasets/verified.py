"""A data set without the questions that `kgqa data verify` did not find valid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kgqa.artifacts.stage import StageManifest
from kgqa.artifacts.verification import STAGE, VERDICTS, read_verdicts
from kgqa.errors import DataError
from kgqa.protocols import Dataset
from kgqa.types import Json, Passage, Question


@dataclass(frozen=True)
class VerifiedDataset:
    """The same files and the same corpus; of the questions those with these ids, in file order."""

    dataset: Dataset
    ids: frozenset[str]

    @property
    def file(self) -> Path:
        return self.dataset.file

    @property
    def sha256(self) -> str:
        return self.dataset.sha256

    def questions(self) -> Iterator[Question]:
        return (question for question in self.dataset.questions() if question.id in self.ids)

    def passages(self) -> Iterator[Passage]:
        return self.dataset.passages()

    def corpus_identity(self) -> Mapping[str, Json]:
        return self.dataset.corpus_identity()


def valid_ids(folder: Path, sha256: str) -> frozenset[str]:
    """Return the valid questions of a folder that `kgqa data verify` wrote.

    sha256: of the data set that they are to be questions of.

    Raises:
        DataError: no verification has ended in the folder, it is of other questions, a file of it was changed, or no
            question is valid.
    """
    key = f"dataset.verified={folder}"
    try:
        manifest = StageManifest.read(folder, STAGE)
        verdicts = list(read_verdicts(manifest.file(folder, VERDICTS)))
    except DataError as error:
        raise DataError(f"{key}: {error}") from error
    verified = manifest.identity["dataset"]
    if verified["sha256"] != sha256:
        raise DataError(f"{key}: it verified another file of dataset={verified['name']}; verify this one")
    valid = frozenset(line.id for line in verdicts if line.verdict == "valid")
    if not valid:
        raise DataError(f"{key}: none of its {len(verdicts):,} questions is valid; choose another folder, or null")
    return valid
