"""Download datasets and corpora, check them, take files out of archives, and convert Hugging Face's format."""

from __future__ import annotations

import bz2
import gzip
import json
import logging
import lzma
import re
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pooch
import requests
from pydantic import BaseModel, ConfigDict, TypeAdapter

from kgqa.datasets.authors_prompts import AuthorsTemplate
from kgqa.datasets.base import TO_ELSEWHERE
from kgqa.datasets.corpus import join_sentences
from kgqa.errors import DataError
from kgqa.types import Json, JsonObject
from kgqa.util import jsonio
from kgqa.util.fs import explain_storage_errors, replace_atomically
from kgqa.util.jsonio import decode_json
from kgqa.util.optional_deps import require_packages

# after a cut connection or a wrong checksum
RETRIES = 2
TIMEOUT = 60.0  # seconds without a byte
# bytes between two signs of progress
BLOCK = 1 << 20
# an error of the system in the message of a library
_SYSTEM = r"\[Errno -?\d+\] ([^'\")\]]+)"
# Columns of the hub's tables, which the authors' files keep as lists
COLUMNS = {
    "supporting_facts": ("title", "sent_id"),
    "context": ("title", "sentences"),
    "evidences": ("fact", "relation", "entity"),
}
TABLES = ("paragraphs", "question_decomposition")  # MuSiQue's lists of records

# file, more bytes, and bytes in all if that is known
Advance = Callable[[str, int, int | None], None]


class Hub(BaseModel):
    """A dataset on Hugging Face's hub."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    config: str
    split: str


class Cut(BaseModel):
    """Records of other entries' files. ids: a list next to this module, one id per line, in the order to write."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ids: str
    entries: tuple[str, ...]  # of conf/downloads.yaml
    # of the folders of these entries
    files: tuple[str, ...]


class Download(BaseModel):
    """An entry of conf/downloads.yaml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    content: str
    license: str
    page: str
    folder: str  # below the data folder
    # tried in order; none: there is nothing to download
    urls: tuple[str, ...]
    file: str  # what the URLs give
    bytes: int | None
    sha256: str | None
    # of the archive; none: the file is no archive
    members: tuple[str, ...] = ()
    # the file that HotpotQA's archive of abstracts is turned into
    abstracts: str | None = None
    hub: Hub | None = None
    cut: Cut | None = None  # instead of a download
    # an entry that is downloaded with it, such as its corpus
    also: str | None = None
    # templates that are written from an authors' program
    templates: dict[str, AuthorsTemplate] = {}

    @property
    def makes(self) -> tuple[str, ...]:
        """Return the names of the final files."""
        return (self.abstracts,) if self.abstracts else self.members or (self.file,)


def parse_sources(entries: JsonObject) -> dict[str, Download]:
    """Return the entries of conf/downloads.yaml by name."""
    return TypeAdapter(dict[str, Download]).validate_python(entries)


def download(source: Download, target: Path, advance: Advance) -> None:
    """Download a source's file. It appears at `target` complete and checked, or not at all.

    Raises:
        DataError: no URL gives the file, or it has another checksum.
        StorageError: the disk is full or not writable.
    """
    pooch.get_logger().setLevel(logging.ERROR)
    reasons = []
    for url in source.urls:
        client = pooch.HTTPDownloader(
            _Progress(source.file, advance), chunk_size=BLOCK, timeout=TIMEOUT
        )
        registry = pooch.create(
            target.parent,
            "",
            registry={target.name: source.sha256},
            urls={target.name: url},
            retry_if_failed=RETRIES,
        )
        with explain_storage_errors(target, TO_ELSEWHERE):
            try:
                registry.fetch(target.name, downloader=client)
            except (ValueError, OSError) as error:
                if getattr(error, "errno", None):  # the disk's, not the connection's
                    raise
                reasons.append(f"{urlsplit(url).netloc}: {_describe(error)}")
            else:
                return
    raise DataError(". ".join(reasons))


def _describe(error: Exception) -> str:
    """Return why a download failed. Of a lost connection only the system's words: libraries repeat their addresses."""
    text = " ".join(str(error).split())
    if isinstance(error, requests.ConnectionError) and (reason := re.search(_SYSTEM, text)):
        return f"no connection ({reason[1]})"
    return text


class _Progress:
    """A progress bar as pooch uses it."""

    def __init__(self, file: str, advance: Advance) -> None:
        # set by pooch; 0 if the server does not say
        self.total = 0
        self._file, self._advance, self._done = file, advance, 0

    def update(self, more: int) -> None:
        more = min(more, self.total - self._done) if self.total else more
        self._done += more
        self._advance(self._file, more, self.total or None)

    def reset(self) -> None:
        """Do nothing: `update` never counts beyond the total."""

    def close(self) -> None:
        """Do nothing."""


def is_intact(file: Path, source: Download) -> bool:
    """Return whether a file has the source's checksum, if that is known."""
    return source.sha256 in (None, pooch.file_hash(str(file)))


def unpack(archive: Path, members: Sequence[str], folder: Path) -> None:
    """Write the files with these names into the folder, from whatever folder of the archive.

    Raises:
        DataError: it is no zip or tar archive, it is broken or encrypted, or a member is missing.
        StorageError: the disk is full or not writable.
    """
    with explain_storage_errors(folder, TO_ELSEWHERE):
        folder.mkdir(parents=True, exist_ok=True)
        with (
            tempfile.TemporaryDirectory(dir=folder, prefix=".unpack-") as scratch,
            _explain_damage(archive),
        ):
            if zipfile.is_zipfile(archive):
                # skips names that lead out of the folder
                shutil.unpack_archive(archive, scratch, "zip")
            else:
                shutil.unpack_archive(archive, scratch, "tar", filter="data")
            files = {
                file.name: file for file in Path(scratch).rglob("*") if "__MACOSX" not in file.parts
            }
            if missing := sorted(set(members) - files.keys()):
                raise DataError(
                    f"{archive}: no {', '.join(missing)} in this archive. Delete it and download it again"
                )
            for name in members:
                files[name].replace(folder / name)


def unpack_abstracts(archive: Path, target: Path, advance: Callable[[int], None]) -> None:
    """Write HotpotQA's archive of first paragraphs, thousands of .bz2 files in a .tar.bz2, as one gzipped JSONL corpus.

    The order is the archive's. Texts are like those of the questions' contexts.

    Raises:
        DataError: the archive is broken, or is another one.
        StorageError: the disk is full or not writable.
    """
    count = 0
    # without a name and time, so that the same archive gives the same bytes
    with (
        replace_atomically(target, TO_ELSEWHERE) as part,
        part.open("wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as out,
        _explain_damage(archive),
        tarfile.open(archive) as files,
    ):
        for member in files:
            content = files.extractfile(member) if member.name.endswith(".bz2") else None
            lines = bz2.decompress(content.read()).splitlines() if content else []
            for line in lines:
                record = decode_json(line)
                passage = join_sentences(record["title"], record["text"])
                out.write(
                    json.dumps({"title": passage.title, "text": passage.text}).encode() + b"\n"
                )
            count += len(lines)
            advance(len(lines))
        if not count:
            raise DataError(f"{archive}: no abstracts in this archive. It is not HotpotQA's")


def cut(
    files: Sequence[Path], ids: Sequence[str], target: Path, advance: Callable[[int], None]
) -> None:
    """Write the records with these ids, in their order, as a JSON array, or as JSONL for .jsonl.

    Raises:
        DataError: a record is missing, or a file cannot be read.
        StorageError: the disk is full or not writable.
    """
    missing, records = set(ids), dict[str, Json]()
    for file in files:
        for _, record in jsonio.stream_records(file):
            advance(1)
            key = str(record.get("_id") or record.get("id")) if isinstance(record, dict) else ""
            if key in missing:
                missing.remove(key)
                records[key] = record
    if missing:
        listed = ", ".join(map(str, files))
        raise DataError(
            f"{listed}: no record {min(missing)} ({len(missing)} of {len(ids)} are missing)"
        )
    lines = [json.dumps(records[key], ensure_ascii=False) for key in ids]
    text = "\n".join(lines) if target.suffix == ".jsonl" else "[" + ",\n".join(lines) + "]"
    with replace_atomically(target, TO_ELSEWHERE) as part:
        part.write_text(text + "\n", encoding="utf-8")


def read_ids(name: str) -> list[str]:
    """Return the ids of a list of kgqa."""
    return (Path(__file__).parent / "cuts" / name).read_text(encoding="utf-8").split()


@contextmanager
def _explain_damage(archive: Path) -> Iterator[None]:
    try:
        yield
    except (
        OSError, EOFError, ValueError, KeyError, TypeError, RuntimeError,
        tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError,
    ) as error:  # fmt: skip
        if getattr(error, "errno", None):
            raise
        raise DataError(
            f"{archive}: broken archive ({error}). Delete it and download it again"
        ) from None


def convert(hub: Hub, folder: Path | None, target: Path, advance: Callable[[int], None]) -> None:
    """Write a dataset in Hugging Face's format as its authors publish it: a JSON array, or JSONL for .jsonl.

    Args:
        folder: what `save_to_disk` wrote, or a folder with .parquet files as on the hub; None: the hub itself.

    Raises:
        ConfigError: the package `datasets` is not installed.
        DataError: there is no such dataset, split or file, it cannot be read, or it is an unknown dataset.
    """
    require_packages("datasets", "datasets")
    import datasets

    before, between, after = (
        ("", "\n", "\n") if target.suffix == ".jsonl" else ("[\n", ",\n", "\n]\n")
    )
    count = 0
    with replace_atomically(target, TO_ELSEWHERE) as part, part.open("w", encoding="utf-8") as out:
        try:
            for row in _load(datasets, hub, folder):
                out.write(
                    (between if count else before) + json.dumps(original(row), ensure_ascii=False)
                )
                count += 1
                advance(1)
        except (OSError, ValueError, KeyError, datasets.exceptions.DatasetsError) as error:
            raise DataError(
                f"{folder or hub.id}: {error}. Expected split {hub.split} of {hub.id}, {hub.config}"
            ) from None
        if not count:
            raise DataError(f"{target.name}: no rows to write")
        out.write(after)


def _load(datasets: Json, hub: Hub, folder: Path | None) -> Json:
    if folder is None:
        return datasets.load_dataset(hub.id, hub.config, split=hub.split, streaming=True)
    if any((folder / name).is_file() for name in ("dataset_dict.json", "state.json")):
        saved = datasets.load_from_disk(str(folder))
        return saved[hub.split] if isinstance(saved, datasets.DatasetDict) else saved
    files = sorted(folder.rglob(f"{hub.split}*.parquet"))
    names = [str(file) for file in files if hub.config in file.relative_to(folder).parts] or [
        *map(str, files)
    ]
    return datasets.load_dataset("parquet", data_files=names, split="train", streaming=True)


def original(row: JsonObject) -> Json:
    """Return a row as the authors' file has it. The hub stores lists of records as records of lists, `_id` as `id`."""
    try:
        if "paragraphs" in row:
            return {key: _records(value) if key in TABLES else value for key, value in row.items()}
        lists = {
            key: _lists(row[key], columns)
            for key, columns in COLUMNS.items()
            if row.get(key) is not None
        }
        others = {key: value for key, value in row.items() if key not in ("id", "_id")}
        return {"_id": row["_id"] if "_id" in row else row["id"], **others, **lists}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DataError(
            f"a row with {', '.join(row)} does not match any known dataset ({error!r})"
        ) from None


def _records(table: Json) -> list[JsonObject]:
    if isinstance(table, list):
        return table
    return [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]


def _lists(table: Json, columns: tuple[str, ...]) -> list[Json]:
    if isinstance(table, list) and not (table and isinstance(table[0], dict)):
        return table
    return [[record[column] for column in columns] for record in _records(table)]
