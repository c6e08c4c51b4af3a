"""The base class of datasets read from files: location, identity and corpus."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kgqa.datasets import corpus, files
from kgqa.datasets.schema import check_record
from kgqa.errors import ConfigError, nearest
from kgqa.types import Json, Passage, Question
from kgqa.util import fs


@dataclass(frozen=True)
class FileDataset(ABC):
    """A file of questions, and the passages to search in.

    `corpus` names one or more files, of any form that `datasets.corpus` reads; null: the questions' own file, whose
    contexts are the corpus. Pinned passages are given with their question and belong to no corpus. `family` tells
    methods whose demonstrations suit the questions. `files`: the names to look for, by split.
    """

    name: str
    path: str | None
    split: str
    files: Mapping[str, tuple[str, ...]]
    corpus: tuple[str, ...] | str | None
    profile: str
    family: str

    def __post_init__(self) -> None:
        if self.split not in self.files:
            known = nearest(self.split, self.files)
            raise ConfigError(f"dataset.split={self.split}: no such split of dataset={self.name}; {known}")
        if not self.files[self.split]:
            raise ConfigError(f"dataset.files.{self.split}=[]: name at least one file to look for as {self.name}")
        if self.corpus == ():
            raise ConfigError(
                "dataset.corpus=[]: name at least one file, or null to search the questions' own passages"
            )

    @property
    def file(self) -> Path:
        return files.find(self.name, self.path, self.files[self.split])

    @property
    def sha256(self) -> str:
        """Return the sha256 of all files that shape the questions, as they lie on disk."""
        return fs.sha256(self.file)

    def questions(self) -> Iterator[Question]:
        """Return the questions in file order.

        Raises:
            DataError: on coming to a broken record, a repeated id, or the end of a file without questions.
        """
        return (question for question in self.read() if question is not None)

    def read(self) -> Iterator[Question | None]:
        """Yield the same with None for each question that is left out."""
        file = self.file
        return check_record(self.records(file), file)

    @abstractmethod
    def records(self, file: Path) -> Iterator[tuple[str, Question | None]]:
        """Yield each question of the file with its place for messages; None for one that is left out, having no
        answer.
        """

    @cached_property
    def corpus_files(self) -> tuple[Path, ...]:
        named = (self.corpus,) if isinstance(self.corpus, str) else self.corpus or ()
        return tuple(files.find_corpus(self.name, path) for path in named) or (self.file,)

    def passages(self) -> Iterator[Passage]:
        """Yield the corpus in order, each passage once.

        Raises:
            DataError: a corpus file is missing, broken or empty, or the questions came without passages.
        """
        return corpus.distinct(self.read_passages())

    def read_passages(self) -> Iterator[Passage]:
        """Yield the same with repeated ones as often as they come."""
        return (passage for file in self.corpus_files for passage in corpus.read(file))

    def corpus_identity(self) -> Mapping[str, Json]:
        """Return what tells this corpus from any other, without reading it through: the hashes of its files."""
        return {"files": [fs.quick_sha256(file) for file in self.corpus_files]}
