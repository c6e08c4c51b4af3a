"""Export and import of calls as one file, with which others replay runs without calling a model.

The file is JSONL in zstd: a header, one call per line with its reply as the stored text, and at the end their number.
"""

from __future__ import annotations

import io
import json
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from kgqa.artifacts.schema import Artifact, check_json
from kgqa.cache.database import BAD, Database, reply_of
from kgqa.cache.maintenance import LATEST, existing
from kgqa.cache.store import INSERT, CallCache
from kgqa.errors import ConfigError, DataError, nearest
from kgqa.types import Json
from kgqa.util.fs import explain_storage_errors, replace_atomically
from kgqa.util.jsonio import decode_json
from kgqa.util.redaction import secret_variables

FORMAT = "kgqa calls 1"


@dataclass(frozen=True, slots=True)
class Exported:
    """Numbers of calls. damaged, secret: omitted ones, that are damaged or repeat a key of the environment."""

    calls: int
    damaged: int
    secret: int


@dataclass(frozen=True, slots=True)
class Imported:
    """Numbers of calls. different: those with another reply here, which stays."""

    new: int
    equal: int
    different: int


class _Header(Artifact):
    format: str


class _End(Artifact):
    calls: int


class _Line(Artifact):
    key: str
    value: str
    checksum: int
    engine: str
    model: str
    made: int | None

    def is_whole(self) -> bool:
        """Check the call. Raises ValueError if a text has half a surrogate pair."""
        (self.engine + self.model).encode()
        reply = reply_of(self.key.encode(), self.value.encode(), self.checksum)
        return reply is not BAD and (self.made is None or 0 <= self.made <= LATEST)


def export_calls(
    folder: Path, file: Path, keys: Collection[str] | None = None, engines: Collection[str] | None = None
) -> Exported:
    """Write calls in the order of their keys. Equal contents give equal bytes.

    Args:
        keys: only these calls; None: all.
        engines: only calls that these engines, rankers or retrievers answered; None: all.

    Raises:
        ConfigError: the cache has no calls of such an engine.
        DataError: there is no cache.
        StorageError: the disk refuses, or another program holds the cache.
    """
    counts = Counter[str]()
    with existing(folder) as database:
        if engines is not None:
            known = {_text(engine) for (engine,) in database.rows("SELECT DISTINCT engine FROM calls")}
            for engine in sorted(set(engines) - known):
                raise ConfigError(f"--engine {engine}: no calls of it here; {nearest(engine, known)}")
        packer = zstandard.ZstdCompressor(level=9, write_checksum=True)
        with (
            replace_atomically(file, "name a file on a disk with room") as fresh,
            fresh.open("wb") as target,
            packer.stream_writer(target, closefd=False) as packed,
        ):
            for line in _export_lines(database, keys, engines, counts):
                packed.write(f"{json.dumps(line)}\n".encode())
    return Exported(counts["calls"], counts["damaged"], counts["secret"])


def _export_lines(
    database: Database, keys: Collection[str] | None, engines: Collection[str] | None, counts: Counter[str]
) -> Iterator[dict[str, Json]]:
    hidden = [json.dumps(secret)[1:-1].encode() for secret in secret_variables().values()]
    yield {"format": FORMAT}
    for key, value, stored, engine, model, made in _select(database, keys):
        if engines is not None and _text(engine) not in engines:
            continue
        if reply_of(key, value, stored) is BAD:
            counts["damaged"] += 1
        elif any(secret in value for secret in hidden):
            counts["secret"] += 1
        else:
            counts["calls"] += 1
            yield _Line(
                key=_text(key),
                value=_text(value),
                checksum=stored,
                engine=_text(engine),
                model=_text(model),
                made=made if isinstance(made, int) else None,
            ).json()
    yield {"calls": counts["calls"]}


def _select(database: Database, keys: Collection[str] | None) -> Iterator[tuple[Any, ...]]:
    if keys is None:
        yield from database.iterate("SELECT * FROM calls ORDER BY key")
    else:
        for key in sorted(keys):
            yield from database.rows("SELECT * FROM calls WHERE key = ?", (key,))


def import_calls(folder: Path, file: Path) -> Imported:
    """Merge an exported file: all of it, or nothing. Stored replies stay. The cache is created if there is none.

    Raises:
        DataError: the file is not an export, or damaged. The message names the line.
        StorageError: the disk refuses, or another program holds the cache.
    """
    if not file.is_file():
        raise DataError(f"{file}: no such file; give one that kgqa cache export wrote")
    counts = Counter[str]()
    CallCache(folder).close()  # creates it
    with (
        explain_storage_errors(file, "give a file that can be read"),
        file.open("rb") as packed,
        existing(folder) as database,
        database.writing() as connection,
    ):
        for line in _import_lines(file, packed):
            counts[_import(connection, line)] += 1
    return Imported(counts["new"], counts["equal"], counts["different"])


def _import(connection: sqlite3.Connection, line: _Line) -> str:
    row = connection.execute("SELECT value, checksum FROM calls WHERE key = ?", (line.key,)).fetchone()
    if row and reply_of(line.key.encode(), *row) is not BAD:
        return "equal" if row[0] == line.value.encode() else "different"
    values = (line.key, line.value, line.checksum, line.engine, line.model, line.made)
    connection.execute(f"REPLACE {INSERT}", values)
    return "new"


def _import_lines(file: Path, packed: Any) -> Iterator[_Line]:
    reader = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True)
    number, calls, expected = 0, 0, None
    try:
        for number, text in enumerate(io.TextIOWrapper(reader, encoding="utf-8", newline="\n"), start=1):
            where, value = f"{file}:{number}", decode_json(text)
            if number == 1:
                written = check_json(_Header, value, where).format
                if written != FORMAT:
                    raise DataError(f"{where}: format {written!r}, expected {FORMAT!r}")
            elif isinstance(value, dict) and "calls" in value:
                expected = check_json(_End, value, where).calls
            else:
                calls += 1
                line = check_json(_Line, value, where)
                if not line.is_whole():
                    raise DataError(f"{where}: damaged (call {line.key[:12]}…); export it again")
                yield line
    except (zstandard.ZstdError, ValueError, EOFError) as error:
        raise DataError(f"{file}:{number + 1}: not what kgqa cache export writes ({error}); export it again") from error
    if expected != calls:
        raise DataError(f"{file}: cut short after {calls:,} calls; export or fetch it again")


def _text(value: object) -> str:
    return str(value, "utf-8", "replace") if isinstance(value, bytes) else str(value or "")
