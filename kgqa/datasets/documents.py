"""Documents of a person's own: which files there are, what is read of each by its kind, and where a passage stands."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kgqa.datasets import corpus, docx, headings, pdf, splitting
from kgqa.datasets.html_text import page
from kgqa.errors import DataError, UsageError
from kgqa.types import Json, Passage
from kgqa.util import fs
from kgqa.util.optional_deps import require_packages

TEXT, HTML, PDF, DOCX = (".txt", ".md", ".markdown"), (".html", ".htm"), ".pdf", ".docx"
KINDS = (*TEXT, *HTML, PDF, DOCX)
PACKAGES = {
    PDF: ("pdf", ("pdfplumber", "pypdfium2")),
    DOCX: ("documents", ("mammoth",)),
}  # by kind: the extra, and whom
SHOWN = 3  # names in a message

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Where:
    """A place in a document. `page`: "page 3", "table 2 page 3", of PDFs alone; `line`: from 1, of texts alone."""

    file: Path
    page: str = ""
    line: int | None = None

    def __str__(self) -> str:
        if self.page:
            return f"{self.file}, {self.page}"
        return f"{self.file}:{self.line}" if self.line else str(self.file)


@dataclass(frozen=True)
class Documents:
    """Files, and folders with all below them that is not hidden. One that cannot be read is left out and told.

    A file's name is that on disk without the suffix, files that share it are named by their paths. A passage's title is
    its document's heading, see `kgqa.datasets.headings`, or the name where it has none.
    """

    places: tuple[Path, ...]
    kinds: tuple[str, ...]
    passage_size: int

    @cached_property
    def files(self) -> Mapping[str, Path]:
        """Return the files by name, in the order of the given places, those of a folder by path.

        Raises:
            DataError: a place is not there, is of no kind that can be read, or there is no document at all.
        """
        below = {file.resolve(): (file, place) for place in self.places for file in self._below(place)}
        stems = Counter(file.stem for file, _ in below.values())
        short = {file: file.stem if stems[file.stem] == 1 else _path(file, place) for file, place in below.values()}
        shared = Counter(short.values())
        named = {name if shared[name] == 1 else file.as_posix(): file for file, name in short.items()}
        if not named:
            raise DataError(f"{_some(self.places)}: no documents there; name {', '.join(self.kinds)} files")
        return named

    @cached_property
    def unreadable(self) -> Mapping[Path, str]:
        """Return what is wrong with each file that is left out."""
        return {self.files[name]: str(read) for name, read in self._read.items() if isinstance(read, UsageError)}

    @cached_property
    def collection(self) -> tuple[Passage, ...]:
        """Return all that is read, each passage once, pages and tables of PDFs too, see `kgqa.datasets.pdf`.

        Raises:
            UsageError: nothing can be read, for the first file's reason.
        """
        readable = [read for read in self._read.values() if not isinstance(read, UsageError)]
        if not readable:
            raise next(read for read in self._read.values() if isinstance(read, UsageError))
        return tuple(corpus.distinct(passage for read in readable for passage in read))

    def passages(self) -> Iterator[Passage]:
        """Yield what is searched: passages and tables, without whole pages, which would repeat them."""
        return (passage for passage in self.collection if not passage.place.startswith("page"))

    def identity(self) -> Mapping[str, Json]:
        """Return what tells these passages from any other: hashes, the splitter, the readers; no paths."""
        files = {name: file for name, file in self.files.items() if file not in self.unreadable}
        return identity(files, self.passage_size)

    def where(self, passage: Passage, part: str = "") -> Where | None:
        """Return where a passage stands, or a part of its text; None for one that is none of these documents'."""
        file = self._files_of.get(passage.id)
        if file is None:
            return None
        if file.suffix.lower() in TEXT:
            return Where(file, line=_line(_text(file), passage.text, part))
        if passage.place or file.suffix.lower() != PDF:
            return Where(file, passage.place)
        pages = (page for page in self.collection if page.title == passage.title and page.place.startswith("page"))
        return Where(file, next((page.place for page in pages if passage.text in page.text), ""))

    @cached_property
    def _files_of(self) -> Mapping[str, Path]:
        """Return the file of each passage by the passage's id; of equal passages the first file."""
        files: dict[str, Path] = {}
        for name, read in self._read.items():
            for passage in () if isinstance(read, UsageError) else read:
                files.setdefault(passage.id, self.files[name])
        return files

    @cached_property
    def _read(self) -> Mapping[str, tuple[Passage, ...] | UsageError]:
        """Return the passages of each file by its name, or the reason why there are none."""
        splitting.identity()  # without its package nothing can be read
        read: dict[str, Document] = {}
        failed: dict[str, UsageError] = {}
        for name, file in self.files.items():
            try:
                read[name] = document(file, name, self.passage_size)
            except UsageError as error:
                failed[name] = error
                continue
            if not any(passage.text.strip() for passage in read[name].passages):
                failed[name] = DataError(f"{file}: no text in it; scanned documents need text recognition (OCR)")
        every: dict[str, tuple[Passage, ...] | UsageError] = {**find_titled(read), **failed}
        return {name: every[name] for name in self.files}

    def _below(self, place: Path) -> list[Path]:
        if place.is_file():
            if place.suffix.lower() not in self.kinds:
                raise DataError(f"{place}: no reader for such files; name {', '.join(self.kinds)} files or a folder")
            refuse_odd_name(place)
            return [place]
        if not place.is_dir():
            raise DataError(f"{place}: no such file or folder; name your documents")
        documents, others = documents_in(place, self.kinds)
        if others:
            log.warning("%s: files of other kinds are left out: %s", place, count_pages(others))
        return documents


def documents_in(folder: Path, kinds: Sequence[str]) -> tuple[list[Path], list[Path]]:
    """Return the files in and below a folder that are of these kinds, by path, and the others; hidden ones are neither.

    Raises:
        DataError: a document's name cannot be written as UTF-8.
    """
    every = sorted(file for file in folder.rglob("*") if file.is_file() and not _is_hidden(file, folder))
    documents = [file for file in every if file.suffix.lower() in kinds]
    for file in documents:
        refuse_odd_name(file)
    return documents, [file for file in every if file.suffix.lower() not in kinds]


def count_pages(files: Sequence[Path]) -> str:
    """Return how many there are of each kind, for people."""
    kinds = Counter(file.suffix.lower() or file.name for file in files)
    return ", ".join(f"{count} {suffix}" for suffix, count in sorted(kinds.items()))


def readers(files: Iterable[Path]) -> dict[str, str]:
    """Return the packages that read these files, with their versions, which decide what text comes.

    Raises:
        ConfigError: one is not installed.
    """
    kinds = {file.suffix.lower() for file in files}
    of_kinds = [require_packages(extra, *packages) for kind, (extra, packages) in PACKAGES.items() if kind in kinds]
    return {package: number for versions in of_kinds for package, number in versions.items()}


@dataclass(frozen=True, slots=True)
class Document:
    heading: str  # "" without one
    passages: tuple[Passage, ...]  # titled by its name


def document(file: Path, name: str, size: int) -> Document:
    """Return a document's passages of at most `size` characters; of a PDF its pages and tables, too.

    Raises:
        DataError: it cannot be read, naming the file and where it can be its line.
        ConfigError: a package that reads such files is not installed.
    """
    suffix = file.suffix.lower()
    if suffix == PDF:
        return Document("", pdf.read(file, name, size))
    if suffix in TEXT:
        text = _text(file)
        heading = "" if suffix == ".txt" else headings.of_markdown(text)
    else:
        read = docx.read(file) if suffix == DOCX else page(_text(file))
        heading, text = read.heading, "\n\n".join(read.blocks)
    return Document(heading, tuple(Passage.of(name, piece.text) for piece in splitting.split(text, size)))


def find_titled(documents: Mapping[str, Document]) -> dict[str, tuple[Passage, ...]]:
    """Return the passages of each document by its name, titled by their headings."""
    titles = headings.titles({name: each.heading for name, each in documents.items()})
    return {
        name: each.passages
        if titles[name] == name
        else tuple(Passage.of(titles[name], passage.text, place=passage.place) for passage in each.passages)
        for name, each in documents.items()
    }


def identity(files: Mapping[str, Path], size: int) -> dict[str, Json]:
    """Return what tells their passages from any other: hashes by name, the splitter, the readers; no paths."""
    headed = any(file.suffix.lower() != PDF for file in files.values())
    return {
        "files": [[name, fs.quick_sha256(file)] for name, file in files.items()],
        "splitter": splitting.identity(),
        "readers": readers(files.values()),
        "passage_size": size,
        **({"titles": "headings"} if headed else {}),  # PDFs have their names, as they always had
    }


def refuse_odd_name(file: Path) -> None:
    """It is in every passage of the document, and so in prompts and hashes."""
    try:
        str(file).encode()
    except UnicodeEncodeError:
        raise DataError(f"{file}: the file's name is not UTF-8; rename it") from None


def _text(file: Path) -> str:
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        byte = error.object[error.start]
        raise DataError(f"{file}:{line}: not UTF-8 (byte 0x{byte:02x}); convert the file to UTF-8") from None
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}; take it out of the folder") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise DataError(
            f"{file}:{line}: not text (a byte of 0); convert the file to UTF-8, or take it out of the folder"
        )
    return text


def _line(text: str, passage: str, part: str) -> int | None:
    """Return the line in which a part of a passage begins; None where the file has changed since."""
    start = text.find(passage)
    return None if start < 0 else text.count("\n", 0, start + max(passage.find(part), 0)) + 1


def _path(file: Path, place: Path) -> str:
    return file.relative_to(place).as_posix() if file != place else file.as_posix()


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


def _some(names: Sequence[object]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(map(str, names[:SHOWN])) + more
