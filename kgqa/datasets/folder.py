"""A person's own documents and questions: a folder of files as `kgqa.datasets.documents` reads them, and a JSONL file.

Each line of the questions' file is an object with `question`, and `answer` or `answers` (the first is the answer, the
others are aliases); and where it is known, `id` (else q1, q2, … by line), `type` ("structural": about a page or table;
"content"; or any other name), and `support`: a list of documents' titles, or of objects of `title` and `place` ("page
3", "table 2": of a PDF) or `text` (words that stand in the passages meant).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel

from kgqa.datasets import corpus, files
from kgqa.datasets.documents import KINDS, count_pages, document, documents_in, find_titled, identity
from kgqa.datasets.schema import Gold, check_record, parse_record
from kgqa.errors import ConfigError, DataError, nearest
from kgqa.types import Json, Passage, Question
from kgqa.util import fs, jsonio
from kgqa.util.validators import Count

SHOWN = 3  # names in a message

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
    """Questions that share one collection: every question's `passages` is the same tuple.

    A document's name is its file's without the suffix, or its path in the folder where two files share that name; its
    passages are titled by its heading where it has one.
    Subfolders are read too, hidden files are not. Documents without any text are left out, with a line that says so.
    A PDF gives page and table nodes as well, see `kgqa.datasets.pdf`. Support by `text` is the passages that hold it,
    by `place` the node; by title alone it is any passage of that title.
    """

    name: str
    path: str | None
    kinds: tuple[str, ...]
    questions_file: str | None
    passage_size: Count
    profile: str
    family: str
    corpus: ClassVar[None] = None  # of files beside the documents there is none

    def __post_init__(self) -> None:
        for kind in self.kinds:
            if kind not in KINDS:
                raise ConfigError(f"dataset.kinds: {kind}: no reader for such files; {nearest(kind, KINDS)}")

    @cached_property
    def folder(self) -> Path:
        if self.path is None:
            raise ConfigError(f"dataset={self.name}: name the folder with your documents: dataset.path=FOLDER")
        folder = files.given(self.path)
        if not folder.is_dir():
            raise DataError(f"dataset.path={self.path}: no such folder; name the folder with your documents")
        return folder

    @property
    def file(self) -> Path:
        """Return the questions'."""
        named = self.questions_file
        file = self.folder / "questions.jsonl" if named is None else files.given(named, "questions_file")
        if not file.is_file():
            missing = f"{self.folder}: no questions.jsonl in it" if named is None else f"dataset.questions_file={named}"
            raise DataError(f"{missing}: no such file; name a file of questions: dataset.questions_file=FILE")
        return file

    @cached_property
    def corpus_files(self) -> tuple[Path, ...]:
        """Return the documents, by path."""
        found, others = documents_in(self.folder, self.kinds)
        documents = tuple(file for file in found if file != self.file)
        if not documents:
            raise DataError(f"{self.folder}: no documents in it; put {', '.join(self.kinds)} files there")
        if others := [file for file in others if file != self.file]:
            log.warning("%s: files of other kinds are left out: %s", self.folder, count_pages(others))
        return documents

    @property
    def sha256(self) -> str:
        both = [fs.sha256(self.file), self.corpus_identity()]
        return fs.digest(both)

    def corpus_identity(self) -> Mapping[str, Json]:
        return identity(self._name_files(), self.passage_size)

    def questions(self) -> Iterator[Question]:
        """Return the questions in file order.

        Raises:
            DataError: a document cannot be read, or on coming to a broken question, naming its line.
        """
        return (question for question in self.read() if question is not None)

    def read(self) -> Iterator[Question | None]:
        return check_record(self._records(), self.file)

    def passages(self) -> Iterator[Passage]:
        """Yield what is searched: passages and tables of all documents, without whole pages, which would repeat
        them.
        """
        return (passage for passage in self.collection if not passage.place.startswith("page"))

    read_passages = passages

    @cached_property
    def collection(self) -> tuple[Passage, ...]:
        """Return all documents, read once, in order of their paths; each passage once."""
        empty = [
            name for name, passages in self._passages.items() if not any(passage.text.strip() for passage in passages)
        ]
        if len(empty) == len(self._passages):
            raise DataError(f"{self.folder}: no text in {_some(empty)}; scanned documents need text recognition (OCR)")
        if empty:
            among = len(self._passages)
            log.warning("%s: %d of %d documents have no text: %s", self.folder, len(empty), among, _some(empty))
        full = (passage for name, passages in self._passages.items() if name not in empty for passage in passages)
        return tuple(corpus.distinct(full))

    @cached_property
    def _passages(self) -> dict[str, tuple[Passage, ...]]:
        """Return the passages of each document."""
        return find_titled({name: document(file, name, self.passage_size) for name, file in self._name_files().items()})

    def _name_files(self) -> dict[str, Path]:
        """Return documents by name."""
        stems = Counter(file.stem for file in self.corpus_files)
        return {
            file.stem if stems[file.stem] == 1 else file.relative_to(self.folder).as_posix(): file
            for file in self.corpus_files
        }

    def _records(self) -> Iterator[tuple[str, Question | None]]:
        passages, collection = self._passages, self.collection
        for number, (where, raw) in enumerate(jsonio.stream_records(self.file), start=1):
            record = parse_record(FolderRecord, raw, where)
            cited = [place if isinstance(place, Cited) else Cited(title=place) for place in record.support]
            cited += [Cited(title=title) for title in record.supporting_titles]
            yield (
                where,
                Question(
                    id=record.id or f"q{number}",
                    text=record.question,
                    answers=record.golds(where),
                    passages=collection,
                    support=frozenset(id_ for place in cited for id_ in _support(place, passages, where)),
                    support_titles=frozenset(_title(place, passages) for place in cited),
                    type=record.type,
                ),
            )


def _title(cited: Cited, by_name: Mapping[str, Sequence[Passage]]) -> str:
    """Return the title of the passages of the document that is cited by its name."""
    return next((passage.title for passage in by_name[cited.title]), cited.title)


def _support(cited: Cited, by_name: Mapping[str, Sequence[Passage]], where: str) -> list[str]:
    """Return ids of what is cited; none for a title alone."""
    if cited.title not in by_name:
        raise DataError(f"{where}: support: no document has the name {cited.title!r}; {nearest(cited.title, by_name)}")
    passages = by_name[cited.title]
    if cited.place:
        ids = [p.id for p in passages if p.place == cited.place or p.place.startswith(f"{cited.place} page")]
    else:
        words = " ".join(cited.text.split())
        ids = [p.id for p in passages if words and not p.place and words in " ".join(p.text.split())]
    if not ids and (sought := cited.place or cited.text):
        raise DataError(f"{where}: support: {sought!r} is not in {cited.title!r}; correct it, or give the title alone")
    return ids


def _some(titles: Sequence[str]) -> str:
    more = f" and {len(titles) - SHOWN} more" if len(titles) > SHOWN else ""
    return ", ".join(titles[:SHOWN]) + more
