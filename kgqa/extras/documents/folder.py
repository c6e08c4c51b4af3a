"""A user's own documents and questions: a folder of files as `documents.py` reads them, and a JSONL file.

docs/DOCUMENTS.md describes the keys of a question.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import BaseModel

from kgqa.datasets.base import FAMILY, HASHED, SCORING, resolve_path
from kgqa.datasets.schema import Gold, check_questions, parse_record
from kgqa.errors import ConfigError, DataError, nearest
from kgqa.extras.documents.documents import KINDS, Documents, NoTextError, files_identity
from kgqa.types import JsonObject, Passage, Question
from kgqa.util import fs, jsonio
from kgqa.util.digests import digest
from kgqa.util.settings import Setting
from kgqa.util.validators import Count

log = logging.getLogger(__name__)


class Cited(BaseModel):
    title: str
    place: str = ""
    text: str = ""


class FolderRecord(Gold):
    id: str | None = None
    question: str
    type: str = ""
    support: tuple[str | Cited, ...] = ()


@dataclass(frozen=True)
class Folder:
    """Questions that share one collection: all have the same tuple of `passages`.

    Documents without text are skipped with a warning. Support by `text` is the passages that contain it, by `place` the
    page or table node of a PDF, by title only any passage of that title.
    """

    name: Annotated[str, Setting("Name in reports and folders.")]
    path: Annotated[
        str | None, Setting("The folder with the documents, subfolders included."), HASHED
    ] = None
    kinds: Annotated[
        tuple[str, ...], Setting("Endings of files that are read. Others are skipped.")
    ] = (
        ".txt",
        ".md",
        ".markdown",
        ".html",
        ".htm",
        ".docx",
        ".pdf",
    )
    questions_file: Annotated[
        str | None,
        Setting("A JSONL file with questions. null: questions.jsonl in the folder."),
        HASHED,
    ] = None
    passage_size: Annotated[Count, Setting("Maximum characters per passage.", other="KGP §8.1")] = (
        250
    )
    profile: Annotated[str, Setting("Scoring rules of EM and F1."), SCORING] = "musique"
    family: Annotated[str, Setting("Few-shot examples that suit its questions."), FAMILY] = (
        "hotpotqa"
    )
    # there are no files in addition to the documents
    corpus: ClassVar[None] = None

    def __post_init__(self) -> None:
        for kind in self.kinds:
            if kind not in KINDS:
                raise ConfigError(
                    f"dataset.kinds: {kind}: file type not supported. {nearest(kind, KINDS)}"
                )

    @cached_property
    def folder(self) -> Path:
        if self.path is None:
            raise ConfigError(
                f"dataset={self.name}: name the folder with your documents: dataset.path=FOLDER"
            )
        folder = resolve_path(self.path)
        if folder.is_file():
            raise DataError(
                f"dataset.path={self.path}: a file. For questions without documents: dataset={self.path}. "
                "To search documents, name their folder"
            )
        if not folder.is_dir():
            raise DataError(
                f"dataset.path={self.path}: no such folder. Name the folder with your documents"
            )
        return folder

    @property
    def file(self) -> Path:
        """Return the file of the questions."""
        named = self.questions_file
        file = (
            self.folder / "questions.jsonl"
            if named is None
            else resolve_path(named, "questions_file")
        )
        if not file.is_file():
            missing = (
                f"{self.folder}: no questions.jsonl in it"
                if named is None
                else f"dataset.questions_file={named}"
            )
            raise DataError(
                f"{missing}: no such file. Name a file of questions: dataset.questions_file=FILE"
            )
        return file

    @cached_property
    def documents(self) -> Documents:
        return Documents((self.folder,), self.kinds, self.passage_size, exclude=self.file)

    @property
    def corpus_files(self) -> tuple[Path, ...]:
        return tuple(self.documents.files.values())

    @property
    def sha256(self) -> str:
        return digest([fs.sha256(self.file), self.corpus_identity()])

    def corpus_identity(self) -> JsonObject:
        return files_identity(self.documents.files, self.passage_size)

    @cached_property
    def collection(self) -> tuple[Passage, ...]:
        """Return the passages of all documents; raise a DataError for one that cannot be read."""
        for reason in self.documents.unreadable.values():
            if not isinstance(reason, NoTextError):
                raise reason
            log.warning("skipped: %s", reason)
        return self.documents.collection

    def passages(self) -> Iterator[Passage]:
        """Yield the passages and tables of all documents, without complete pages."""
        _ = self.collection
        return self.documents.passages()

    read_passages = passages

    def questions(self) -> Iterator[Question]:
        """Yield the questions in file order. Raise a DataError for an unreadable document or a broken question."""
        return (question for question in self.read() if question is not None)

    def read(self) -> Iterator[Question | None]:
        return check_questions(self._records(), self.file)

    def _records(self) -> Iterator[tuple[str, Question]]:
        collection = self.collection
        passages = {name: self.documents.contents.get(name, ()) for name in self.documents.files}
        for number, (where, raw) in enumerate(jsonio.stream_records(self.file), start=1):
            record = parse_record(FolderRecord, raw, where)
            cited = [
                each if isinstance(each, Cited) else Cited(title=each) for each in record.support
            ]
            cited += [Cited(title=title) for title in record.supporting_titles]
            support = [id_ for each in cited for id_ in _support(each, passages, where)]
            titles = [
                next((passage.title for passage in passages[each.title]), each.title)
                for each in cited
            ]
            yield (
                where,
                Question(
                    id=record.id or f"q{number}",
                    text=record.question,
                    answers=record.golds(where),
                    passages=collection,
                    support=frozenset(support),
                    support_titles=frozenset(titles),
                    type=record.type,
                ),
            )


def _support(cited: Cited, by_name: Mapping[str, Sequence[Passage]], where: str) -> list[str]:
    """Return the ids of the cited passages, none if only the title is cited."""
    if cited.title not in by_name:
        raise DataError(
            f"{where}: support: no document has the name {cited.title!r}. {nearest(cited.title, by_name)}"
        )
    passages = by_name[cited.title]
    if cited.place:
        ids = [
            p.id
            for p in passages
            if p.place == cited.place or p.place.startswith(f"{cited.place} page")
        ]
    else:
        words = " ".join(cited.text.split())
        ids = [
            p.id for p in passages if words and not p.place and words in " ".join(p.text.split())
        ]
    if not ids and (missing := cited.place or cited.text):
        raise DataError(
            f"{where}: support: {missing!r} is not in {cited.title!r}. Correct it, or write only the title"
        )
    return ids
