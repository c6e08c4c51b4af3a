"""The base class of datasets read from files, and the folders in which their files are looked for."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files as package_files
from pathlib import Path
from typing import Annotated

from kgqa.datasets import corpus
from kgqa.datasets.passages import distinct
from kgqa.datasets.schema import LocatedQuestions, check_questions
from kgqa.errors import ConfigError, DataError, nearest
from kgqa.types import JsonObject, Passage, Question
from kgqa.util import fs
from kgqa.util.settings import NotIdentity, Setting

HASHED = NotIdentity("the identity has the hash of these files")
SCORING = NotIdentity("how answers are scored")
FAMILY = NotIdentity("the identity has the few-shot examples")

# if the disk refuses a download
TO_ELSEWHERE = "Free disk space, or name another folder: to=FOLDER"
# Hydra's notation for a file of a package: pkg://kgqa.datasets/demo.jsonl
PACKAGED = "pkg://"


@dataclass(frozen=True)
class FileDataset(ABC):
    """A file of questions, and the passages to search in.

    files: the file names to look for, by split. corpus: one or more files of any form that `datasets.corpus` reads;
    null: the passages of all questions. Pinned passages belong to no corpus. family: of the few-shot examples.
    """

    name: Annotated[str, Setting("Name in reports and folders. Default: the name of its file.")]
    path: Annotated[
        str | None,
        Setting(
            "A file, or a folder with one of the split's `files`. null: $KGQA_DATA, then data/."
        ),
        HASHED,
    ] = field(default=None, kw_only=True)
    split: Annotated[str, Setting("Part of the data, e.g. dev, test or train."), HASHED]
    files: Annotated[
        Mapping[str, tuple[str, ...]],
        Setting("File names to look for, by split, in this order. They can end with .gz."),
        HASHED,
    ]
    corpus: Annotated[
        tuple[str, ...] | str | None,
        Setting(
            "Files to search in, JSON or JSONL of title and text. null: the passages of all questions of the file."
        ),
        HASHED,
    ] = field(default=None, kw_only=True)
    profile: Annotated[str, Setting("Scoring rules of EM and F1."), SCORING]
    family: Annotated[
        str,
        Setting("Few-shot examples that suit its questions: hotpotqa | 2wiki | musique | iirc."),
        FAMILY,
    ]

    def __post_init__(self) -> None:
        splits = [name for name, files in self.files.items() if files]
        if self.split not in splits:
            options = nearest(self.split, splits)
            raise ConfigError(
                f"dataset.split={self.split}: no such split of dataset={self.name}. {options}"
            )

    @property
    def file(self) -> Path:
        """Return the data file: `path`, or the first of `files` (plain or .gz) in that folder or in those for data.

        Raises:
            DataError: there is none. The message lists the names and folders.
        """
        if self.path is not None and not (named := resolve_path(self.path)).is_dir():
            if not named.exists():
                raise DataError(
                    f"dataset.path={self.path}: no such file. Name an existing file, or {self.remedy}"
                )
            if not named.is_file():
                raise DataError(f"dataset.path={self.path}: a pipe or a device. Name a file")
            return named
        # a folder can be the dataset's own, or one that KGQA_DATA could name
        folders = (
            self.folders
            if self.path is None
            else [named, *(named / below for below in (self.name, "questions"))]
        )
        names = self.files[self.split]
        candidates = (
            folder / each for name in names for folder in folders for each in (name, f"{name}.gz")
        )
        if existing := next((file for file in candidates if file.is_file()), None):
            return existing
        searched = f"no {' or '.join(names)} (plain or .gz) in {', '.join(map(str, folders))}. "
        root = os.environ.get("KGQA_DATA", "")
        if not Path(root).expanduser().is_dir():
            searched += f"KGQA_DATA={root} is no folder. "
        raise DataError(
            f"dataset={self.name}: {searched}To fix it, {self.remedy}, or set dataset.path=FILE, or "
            "KGQA_DATA=FOLDER with the file"
        )

    @property
    def missing_golds(self) -> str:
        """Return what the gold answers lack, such as "without aliases", or ""."""
        return ""

    @property
    def folders(self) -> list[Path]:
        return data_folders(self.name, "questions", "")

    @property
    def remedy(self) -> str:
        if not type(self).__module__.startswith("kgqa."):
            return "put it in one of these folders"
        other = "" if self.split == "dev" else ", or another dataset of kgqa data list"
        return f"run: kgqa data download dataset={self.name}{other}"

    def find(self, key: str, path: str, folders: Sequence[Path]) -> Path:
        """Return the file that `dataset.<key>` names: the path itself, or below one of the folders."""
        named = resolve_path(path, key)
        for folder in (Path(), *folders):
            if (folder / named).is_file():
                return folder / named
        searched = ", ".join(dict.fromkeys(map(str, folders)))
        raise DataError(
            f"dataset.{key}={path}: no such file, nor in {searched}. Name an existing file, or {self.remedy}"
        )

    @property
    def sha256(self) -> str:
        """Return the sha256 of all files that determine the questions, in their current state."""
        return fs.sha256(self.file)

    def questions(self) -> Iterator[Question]:
        """Yield the questions in file order. Raise a DataError for a broken record, a repeated id or an empty file."""
        return (question for question in self.read() if question is not None)

    def read(self) -> Iterator[Question | None]:
        """Yield the questions, and None for each that is skipped."""
        return check_questions(self.records(self.file), self.file)

    @abstractmethod
    def records(self, file: Path) -> LocatedQuestions:
        """Yield the location and the question of each record, None for a question without an answer."""

    @cached_property
    def corpus_files(self) -> tuple[Path, ...]:
        named = (self.corpus,) if isinstance(self.corpus, str) else self.corpus or ()
        folders = data_folders(self.name, "corpora", "")
        return tuple(self.find("corpus", path, folders) for path in named) or (self.file,)

    def passages(self) -> Iterator[Passage]:
        """Yield the corpus in order, each passage once.

        Raises:
            DataError: a corpus file is missing, broken or empty, or the questions came without passages.
        """
        return distinct(self.read_passages())

    def read_passages(self) -> Iterator[Passage]:
        """Yield the corpus with repeated passages."""
        if not self.corpus:
            return self.own_passages()
        return (passage for file in self.corpus_files for passage in corpus.read(file))

    def own_passages(self) -> Iterator[Passage]:
        """Yield the passages of all questions."""
        passages = (passage for question in self.questions() for passage in question.passages)
        return corpus.refuse_empty(passages, self.file)

    def corpus_identity(self) -> JsonObject:
        """Return the hashes of the corpus files."""
        return {"files": [fs.quick_sha256(file) for file in self.corpus_files]}


class ContextDataset(FileDataset):
    """A file with contexts that `datasets.corpus` reads. They are the corpus, also those of skipped questions."""

    def own_passages(self) -> Iterator[Passage]:
        return corpus.read(self.file)


def data_folders(*below: str) -> list[Path]:
    """Return these folders of `$KGQA_DATA`, if it is set, and then of `data`."""
    environment = os.environ.get("KGQA_DATA")
    roots = [Path(environment).expanduser(), Path("data")] if environment else [Path("data")]
    return [root / folder for root in roots for folder in below]


def resolve_path(path: str, key: str = "path") -> Path:
    """Return the path or packaged file that `dataset.<key>` names; raise a DataError if there is no such package."""
    if not path.startswith(PACKAGED):
        return Path(path).expanduser()
    package, _, name = path.removeprefix(PACKAGED).partition("/")
    try:
        return Path(str(package_files(package))) / name
    except ModuleNotFoundError:
        raise DataError(
            f"dataset.{key}={path}: no package {package}. Write {PACKAGED}PACKAGE/FILE"
        ) from None
