"""Takes the files of a data set out of the archives they come in."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import json
import lzma
import stat
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
from kgqa.types import Passage
from kgqa.util.fs import replace_atomically
from kgqa.util.jsonio import decode_json

LARGEST_SHARE = 200  # times its archive: data sets unpack to ten times as much, what fills disks to a thousand
ALWAYS = 1 << 20  # bytes that any archive may unpack to
_TOO_LARGE = f"{{where}}: unpacks to more than {LARGEST_SHARE} times its archive; it is not the data set's"
LARGEST_SHARD = 1 << 28  # bytes of abstracts in one file of HotpotQA's archive; the real ones have thousands


def unpack(archive: Path, members: Sequence[str], folder: Path) -> None:
    """Write the members, found by their names alone, into the folder; each appears there whole or not at all.

    Whatever path a member has, it comes to lie in the folder; links are passed over.

    Raises:
        DataError: it is no zip or tar archive, it is broken or encrypted, a member is missing, or far too large.
        StorageError: the disk is full or not writable.
    """
    missing, left = set(members), _most(archive)
    with _reading(archive):
        for name, source in _files(archive):
            if not missing:
                break
            if name in missing:
                with replace_atomically(folder / name, TO_ELSEWHERE) as part, part.open("wb") as out:
                    left = _copy(source, out, left, f"{archive}: {name}")
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
        replace_atomically(target, TO_ELSEWHERE) as part,
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
    with _reading(archive):
        for files, member in _read_tar(archive):
            source = files.extractfile(member) if member.isfile() and member.name.endswith(".bz2") else None
            if source is None:
                continue
            yield _shard(source.read(), f"{archive}: {member.name}")


def _shard(compressed: bytes, where: str) -> list[Passage]:
    try:
        unpacked = bz2.BZ2File(io.BytesIO(compressed)).read(LARGEST_SHARD + 1)
        if len(unpacked) > LARGEST_SHARD:
            raise DataError(f"{where}: unpacks to more than {LARGEST_SHARD:,} bytes; it is not HotpotQA's")
        records = [decode_json(line) for line in unpacked.split(b"\n") if line.strip()]
        return [of_sentences(record["title"], record["text"]) for record in records]
    except (
        OSError,
        EOFError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
    ) as error:  # bz2 reports broken files as OSError
        raise DataError(f"{where}: not a file of abstracts ({error!r}); fetch the archive again") from None


def _files(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the archive's files in order, by their names without folders."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            for each in zipped.infolist():
                if not each.is_dir() and not each.filename.startswith("__MACOSX/") and not _is_link(each):
                    with zipped.open(each) as source:
                        yield PurePosixPath(each.filename).name, source
        return
    for tarred, member in _read_tar(archive):
        extracted = tarred.extractfile(member) if member.isfile() else None
        if extracted is not None:
            yield PurePosixPath(member.name).name, extracted


def _read_tar(archive: Path) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """Yield its members in order. Raises DataError: one that is passed over, too, unpacks to far too much."""
    # "r:*", since the stream of "r|*" takes time that grows with the square of what a bz2 block unpacks to
    with tarfile.open(archive, "r:*") as tarred:
        for member in tarred:
            if member.offset_data + member.size > _most(archive):
                raise DataError(_TOO_LARGE.format(where=f"{archive}: {member.name}"))
            yield tarred, member


def _most(archive: Path) -> int:
    """Return bytes that it may unpack to."""
    return max(archive.stat().st_size * LARGEST_SHARE, ALWAYS)


@contextmanager
def _reading(archive: Path) -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise DataError(f"{archive}: broken archive ({error}); fetch it again") from None
    except (RuntimeError, NotImplementedError) as error:  # zipfile's for a password, and for a method it does not know
        raise DataError(f"{archive}: cannot be unpacked ({error}); unpack it yourself, or fetch it again") from None
    except (OSError, ValueError) as error:  # those of bz2 have no number
        if getattr(error, "errno", None) not in (None, errno.EINVAL):  # zipfile's for a place before the file's begin
            raise
        raise DataError(f"{archive}: broken archive ({error}); fetch it again") from None


def _is_link(member: zipfile.ZipInfo) -> bool:
    return stat.S_ISLNK(member.external_attr >> 16)


def _copy(source: IO[bytes], target: IO[bytes], most: int, where: str) -> int:
    """Return how many of `most` bytes are left. Raises DataError: there are more."""
    while block := source.read(min(1 << 20, most + 1)):
        most -= len(block)
        if most < 0:
            raise DataError(_TOO_LARGE.format(where=where))
        target.write(block)
    return most
