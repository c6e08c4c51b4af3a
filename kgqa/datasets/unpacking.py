"""Takes the files of a data set out of the archives they come in."""

from __future__ import annotations

import bz2
import gzip
import json
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from kgqa.datasets.contexts import of_sentences
from kgqa.datasets.files import TO_ELSEWHERE
from kgqa.errors import DataError
from kgqa.json_values import decoded
from kgqa.storage import replacing
from kgqa.types import Passage


def unpack(archive: Path, members: Sequence[str], folder: Path) -> None:
    """Write the members, found by their names alone, into the folder; each appears there whole or not at all.

    Raises:
        DataError: it is no zip or tar archive, it is broken, or a member is missing.
        StorageError: the disk is full or not writable.
    """
    missing = set(members)
    with _reading(archive):
        for name, source in _files(archive):
            if not missing:
                break
            if name in missing:
                with replacing(folder / name, TO_ELSEWHERE) as part, part.open("wb") as out:
                    shutil.copyfileobj(source, out, 1 << 20)
                missing.remove(name)
    if missing:
        raise DataError(f"{archive}: no {', '.join(sorted(missing))} in this archive; fetch it again")


def unpack_abstracts(archive: Path, target: Path, advance: Callable[[int], None]) -> None:
    """HotpotQA's archive of first paragraphs, thousands of .bz2 files in a .tar.bz2, as one gzipped JSONL corpus.

    Streamed: nothing but the corpus is written. The order is the archive's, the text that of the questions'
    contexts; `advance(n)` comes after n more passages.

    Raises:
        DataError: the archive is broken, or is another one.
        StorageError: the disk is full or not writable.
    """
    some = False
    # no name and no time in the file, so that the same archive gives the same bytes
    with (
        replacing(target, TO_ELSEWHERE) as part,
        part.open("wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as out,
    ):
        for passages in _abstracts(archive):
            for passage in passages:
                out.write(json.dumps({"title": passage.title, "text": passage.text}).encode() + b"\n")
            some = some or bool(passages)
            advance(len(passages))
        if not some:
            raise DataError(f"{archive}: no abstracts in this archive; it is not HotpotQA's")


def _abstracts(archive: Path) -> Iterator[list[Passage]]:
    with _reading(archive), tarfile.open(archive, "r|*") as files:
        for member in files:
            source = files.extractfile(member) if member.name.endswith(".bz2") else None
            if source is None:
                continue
            yield _shard(source.read(), f"{archive}: {member.name}")


def _shard(compressed: bytes, where: str) -> list[Passage]:
    try:
        records = [decoded(line) for line in bz2.decompress(compressed).split(b"\n") if line.strip()]
        return [of_sentences(record["title"], record["text"]) for record in records]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:  # bz2 reports broken files as OSError
        raise DataError(f"{where}: not a file of abstracts ({error!r}); fetch the archive again") from None


def _files(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """The archive's files in order, by their names without folders."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            for name in zipped.namelist():
                if not name.startswith("__MACOSX/"):
                    with zipped.open(name) as source:
                        yield PurePosixPath(name).name, source
        return
    with tarfile.open(archive, "r|*") as tarred:
        for member in tarred:
            extracted = tarred.extractfile(member)
            if extracted is not None:
                yield PurePosixPath(member.name).name, extracted


@contextmanager
def _reading(archive: Path) -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{archive}: broken archive ({error}); fetch it again") from None
