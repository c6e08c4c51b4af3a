"""A user's own documents: their files, the passages that are read from them, and where passages are in them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

from kgqa.datasets.passages import distinct
from kgqa.datasets.splitting import split, splitter_identity
from kgqa.errors import DataError, UsageError
from kgqa.extras.documents import pdf
from kgqa.extras.documents.document_text import DOCX, HTML, TEXT, read_document, read_text
from kgqa.types import Json, JsonObject, Passage
from kgqa.util import fs
from kgqa.util.optional_deps import require_packages

PDF = ".pdf"
KINDS = (*TEXT, *HTML, PDF, DOCX)
PACKAGES = {
    PDF: ("pdf", ("pdfplumber", "pypdfium2")),
    DOCX: ("documents", ("mammoth",)),
}  # the extra and its readers

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Where:
    """The place of a passage in a document. page: "page 3" or "table 2 page 3" of a PDF. line: from 1, of a text."""

    file: Path
    page: str = ""
    line: int | None = None

    def __str__(self) -> str:
        if self.page:
            return f"{self.file}, {self.page}"
        return f"{self.file}:{self.line}" if self.line else str(self.file)


class NoTextError(DataError):
    """A document without any text."""


@dataclass(frozen=True)
class Documents:
    """Files, and folders with all files of these kinds below them that are not hidden. A named file can be any text.

    A document's name is its file's without the suffix. Files that share a name are named by their paths. The title of
    its passages is its heading, see `document_text`, or its name if it has none. `exclude` is never a document.
    """

    paths: tuple[Path, ...]
    kinds: tuple[str, ...]
    passage_size: int
    exclude: Path | None = None

    @cached_property
    def files(self) -> Mapping[str, Path]:
        """Return the files by name, in the order of the paths, those of a folder by path.

        Raises:
            DataError: a path does not exist, a name is not UTF-8, or there is no document.
        """
        below = {
            file.resolve(): (file, path) for path in self.paths for file in self._files_of(path)
        }
        if not below:
            listed = ", ".join(map(str, self.paths))
            raise DataError(
                f"{listed}: no documents. Name {', '.join(filter(None, self.kinds))} files"
                + (
                    f". For questions without documents: dataset={self.exclude}"
                    * bool(self.exclude)
                )
            )
        stems = Counter(file.stem for file, _ in below.values())
        names = {}
        for file, path in below.values():
            name = file.stem
            if stems[name] > 1:
                name = (file.relative_to(path) if file != path else file).as_posix()
            names[file.as_posix() if name in names else name] = file
        return names

    def _files_of(self, path: Path) -> list[Path]:
        if not path.exists():
            raise DataError(f"{path}: no such file or folder. Name your documents")
        files = (
            [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
        )
        files = [
            file
            for file in files
            if not any(part.startswith(".") for part in file.relative_to(path).parts)
        ]
        documents = [
            file for file in files if file.suffix.lower() in self.kinds and file != self.exclude
        ]
        if path.is_file() and not documents:
            documents = [path]
            self._check_text(path)
        for file in documents:
            # names are in prompts and hashes
            if any("\ud800" <= letter <= "\udfff" for letter in str(file)):
                raise DataError(f"{file}: the file's name is not UTF-8. Rename it")
        others = Counter(
            file.suffix.lower() or file.name
            for file in files
            if file not in (*documents, self.exclude)
        )
        if others:
            listed = ", ".join(f"{count} {kind}" for kind, count in sorted(others.items()))
            log.warning("%s: files of other kinds are skipped: %s", path, listed)
        return documents

    def _check_text(self, file: Path) -> None:
        """Raise a DataError for a named file of another kind that is not UTF-8 text."""
        try:
            read_text(file)
        except DataError:
            kinds = ", ".join(filter(None, self.kinds))
            raise DataError(
                f"{file}: file type not supported. Name {kinds} files, UTF-8 text, or a folder"
            ) from None

    @cached_property
    def _contents(self) -> tuple[dict[str, tuple[Passage, ...]], dict[Path, UsageError]]:
        # without its package nothing can be read
        splitter_identity()
        passages: dict[str, tuple[Passage, ...]] = {}
        headings: dict[str, str] = {}
        unreadable: dict[Path, UsageError] = {}
        for name, file in self.files.items():
            try:
                headings[name], passages[name] = self._read(file, name)
            except UsageError as error:  # noqa: PERF203 - reading takes longer
                unreadable[file] = error
        shared = Counter(heading.casefold() for heading in headings.values())
        for name, heading in headings.items():
            if heading:
                title = heading if shared[heading.casefold()] == 1 else f"{heading} ({name})"
                passages[name] = tuple(
                    Passage.of(title, passage.text) for passage in passages[name]
                )
        return passages, unreadable

    @property
    def contents(self) -> Mapping[str, tuple[Passage, ...]]:
        """Return the passages of each readable file by its name. PDFs also have page nodes."""
        return self._contents[0]

    @property
    def unreadable(self) -> Mapping[Path, UsageError]:
        """Return the reason for each file that cannot be read."""
        return self._contents[1]

    def _read(self, file: Path, name: str) -> tuple[str, tuple[Passage, ...]]:
        heading = ""
        if file.suffix.lower() == PDF:
            passages = pdf.read(file, name, self.passage_size)
        else:
            heading, text = read_document(file)
            passages = tuple(
                Passage.of(name, piece.text) for piece in split(text, self.passage_size)
            )
        if not any(passage.text.strip() for passage in passages):
            raise NoTextError(f"{file}: no text. Scanned documents need text recognition (OCR)")
        return heading, passages

    @cached_property
    def collection(self) -> tuple[Passage, ...]:
        """Return all passages once, with pages and tables of PDFs. Raise a UsageError if no file is readable."""
        if not self.contents:
            raise next(iter(self.unreadable.values()))
        return tuple(distinct(chain.from_iterable(self.contents.values())))

    def passages(self) -> Iterator[Passage]:
        """Yield the passages to search: all but complete pages, which would repeat them."""
        return (passage for passage in self.collection if not passage.place.startswith("page"))

    def identity(self) -> JsonObject:
        """Return hashes of the readable files, the splitter and the readers."""
        return files_identity(
            {name: file for name, file in self.files.items() if file not in self.unreadable},
            self.passage_size,
        )

    def where(self, passage: Passage, part: str = "") -> Where | None:
        """Return the place of a passage, or of a part of its text. None if no document contains it."""
        file = self._file_by_passage.get(passage.id)
        if file is None:
            return None
        kind = file.suffix.lower()
        if kind not in (*HTML, PDF, DOCX):
            text = read_text(file)
            start = text.find(passage.text)  # -1: the file has changed
            offset = start + max(passage.text.find(part), 0)
            return Where(file, line=None if start < 0 else text.count("\n", 0, offset) + 1)
        if passage.place or kind != PDF:
            return Where(file, passage.place)
        pages = (
            page
            for page in self.collection
            if page.title == passage.title and page.place.startswith("page")
        )
        return Where(file, next((page.place for page in pages if passage.text in page.text), ""))

    @cached_property
    def _file_by_passage(self) -> Mapping[str, Path]:
        """Return the file of each passage id; of equal passages the first file."""
        pairs = [
            (passage.id, self.files[name])
            for name, passages in self.contents.items()
            for passage in passages
        ]
        return dict(reversed(pairs))


def files_identity(files: Mapping[str, Path], size: int) -> dict[str, Json]:
    """Return everything that determines the passages of these files, without their paths."""
    kinds = {file.suffix.lower() for file in files.values()}
    versions = [
        require_packages(extra, *packages)
        for kind, (extra, packages) in PACKAGES.items()
        if kind in kinds
    ]
    return {
        "files": [[name, fs.quick_sha256(file)] for name, file in files.items()],
        "splitter": splitter_identity(),
        "readers": {package: number for each in versions for package, number in each.items()},
        "passage_size": size,
        **({"titles": "headings"} if kinds - {PDF} else {}),  # PDFs have no headings
    }
