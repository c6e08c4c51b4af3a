"""Maintain a call cache: check it, show statistics, prune it, export and import calls.

An exported file is JSONL in zstd: a header, one call with its reply per line, and the number of calls at the end.
It lets others replay runs without calling a model.
"""

# ruff: noqa: S608 - statements contain constants of this file only; values are bound

from __future__ import annotations

import io
import json
import sqlite3
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import zstandard
from pydantic import Field

from kgqa.artifacts.schema import Artifact, check_json
from kgqa.cache.store import FILE, INSERT, LATEST, VALUE, CallCache, Database, decode_row, is_intact
from kgqa.errors import ConfigError, DataError, nearest
from kgqa.types import Json
from kgqa.util.fs import explain_storage_errors, replace_atomically
from kgqa.util.jsonio import decode_json, iterate_lines
from kgqa.util.redaction import secret_variables

DAY = 86_400  # seconds
FORMAT = "kgqa calls 1"
# keys and values are ASCII. A damaged value can be null, and a copy of a huge one would need much memory
_SIZE = "ifnull(length(key), 0) + ifnull(length(value), 0)"


@contextmanager
def existing(folder: Path) -> Iterator[Database]:
    """Open an existing cache. Raise DataError if there is none, or it is damaged."""
    if not (folder / FILE).is_file():
        raise DataError(
            f"{folder / FILE}: no such call cache. Change to the folder of the runs, or set KGQA_CACHE"
        )
    with closing(Database(folder / FILE)) as database:
        yield database


def check(folder: Path, *, repair: bool = False) -> tuple[int, int]:
    """Check SQLite's structures and the checksum of every row. Return the number of calls and of damaged ones.

    repair: delete damaged rows.

    Raises:
        DataError: there is no cache, or its structure is damaged.
        StorageError: another program holds the file.
    """
    calls, damaged = 0, []
    with existing(folder) as database:
        ((complaint,),) = database.rows("PRAGMA integrity_check(1)")
        if complaint != b"ok":
            raise DataError(
                f"{database.path}: damaged call cache ({' '.join(complaint.decode(errors='replace').split())}). "
                "Move it away and run the same command again."
            )
        for row in database.iterate(f"SELECT key, {VALUE}, checksum FROM calls"):
            calls += 1
            damaged += [row[0]] if decode_row(*row) is None else []
        if repair and damaged:
            with database.writing() as connection:
                connection.executemany(
                    "DELETE FROM calls WHERE CAST(key AS BLOB) = ?", [(key,) for key in damaged]
                )
    return calls, len(damaged)


def stats(folder: Path) -> list[dict[str, Any]]:
    """Return calls, bytes, and the seconds since 1970 of the oldest and newest call by origin, the largest first."""
    date = f"CASE WHEN typeof(made) = 'integer' AND made BETWEEN 0 AND {LATEST} THEN made END"
    # with a limit, SQLite sorts sizes instead of values
    sizes = f"SELECT engine, model, made, {_SIZE} AS size FROM calls LIMIT -1"
    statement = f"""SELECT engine, model, count(*), sum(size) AS bytes, min({date}), max({date}) FROM ({sizes})
        GROUP BY engine, model ORDER BY bytes DESC, engine, model"""
    names = ("engine", "model", "calls", "bytes", "oldest", "newest")
    with existing(folder) as database:
        rows = database.rows(statement)
    return [
        dict(zip(names, (_text(engine), _text(model), *rest), strict=True))
        for engine, model, *rest in rows
    ]


def prune(
    folder: Path, *, older_than: int | None = None, engine: str | None = None, delete: bool
) -> tuple[int, int]:
    """Find calls that meet all conditions, and delete them if `delete`. Return their number and bytes.

    Args:
        older_than: days since the call was made.
    """
    before = None if older_than is None else max(0, int(time.time()) - older_than * DAY)
    where = "WHERE (?1 IS NULL OR made < ?1) AND (?2 IS NULL OR engine = ?2)"
    with existing(folder) as database:
        ((calls, size),) = database.rows(
            f"SELECT count(*), ifnull(sum({_SIZE}), 0) FROM calls {where}", (before, engine)
        )
        if delete and calls:
            with database.writing() as connection:
                connection.execute(f"DELETE FROM calls {where}", (before, engine))
                connection.execute(
                    "DELETE FROM imported_calls WHERE key NOT IN (SELECT key FROM calls)"
                )
            database.rows("VACUUM")
    return calls, size


class _CallLine(Artifact):
    key: str
    value: str
    checksum: int
    engine: str
    model: str
    made: Annotated[int, Field(ge=0, le=LATEST)] | None


def export_calls(
    folder: Path,
    file: Path,
    keys: Collection[str] | None = None,
    engines: Collection[str] | None = None,
) -> Counter[str]:
    """Write calls in the order of their keys. Equal contents give equal bytes.

    Return the number of `calls`, and of omitted ones: `damaged`, and `secret` with an API key of the environment.

    Args:
        keys: only these calls (None: all).
        engines: only calls of these engines, rankers or retrievers (None: all).

    Raises:
        ConfigError: the cache has no calls of such an engine.
        DataError: there is no cache.
        StorageError: the disk fails, or another program holds the cache.
    """
    counts = Counter[str]()
    secrets = [json.dumps(secret)[1:-1].encode() for secret in secret_variables().values()]
    with existing(folder) as database:
        identities = {
            _text(engine) for (engine,) in database.rows("SELECT DISTINCT engine FROM calls")
        }
        for engine in sorted(set(engines or ()) - identities):
            raise ConfigError(
                f"--engine {engine}: no calls of this engine. {nearest(engine, identities)}"
            )
        with (
            replace_atomically(file, "Free disk space, or name a file on another disk") as fresh,
            fresh.open("wb") as target,
            zstandard.ZstdCompressor(level=9, write_checksum=True).stream_writer(
                target, closefd=False
            ) as packed,
        ):

            def write(line: dict[str, Json]) -> None:
                packed.write(f"{json.dumps(line)}\n".encode())

            write({"format": FORMAT})
            for row in _select(database, keys):
                if engines is not None and _text(row[3]) not in engines:
                    continue
                intact = is_intact(*row[:3])
                secret = intact and any(text in row[1] for text in secrets)
                counts["damaged" if not intact else "secret" if secret else "calls"] += 1
                if intact and not secret:
                    plain = (_text(value) if isinstance(value, bytes) else value for value in row)
                    write(dict(zip(_CallLine.__annotations__, plain, strict=True)))
            write({"calls": counts["calls"]})
    return counts


def _select(database: Database, keys: Collection[str] | None) -> Iterator[tuple[Any, ...]]:
    if keys is None:
        yield from database.iterate("SELECT * FROM calls ORDER BY key")
    else:
        for key in sorted(keys):
            yield from database.rows("SELECT * FROM calls WHERE key = ?", (key,))


def import_calls(folder: Path, file: Path) -> Counter[str]:
    """Merge an exported file, completely or not at all. Stored replies stay. Create the cache if there is none.

    Return the number of `new` calls, and of `equal` and `different` ones, which this cache has already.

    Raises:
        DataError: the file is not an export, or damaged. The message names the line.
        StorageError: the disk fails, or another program holds the cache.
    """
    if not file.is_file():
        raise DataError(f"{file}: no such file. Name a file of kgqa cache export.")
    counts = Counter[str]()
    CallCache(folder).close()  # creates it
    with (
        explain_storage_errors(file, "name a readable file"),
        file.open("rb") as packed,
        existing(folder) as database,
        database.writing() as connection,
    ):
        for line in _read_export(file, packed):
            counts[_merge(connection, line)] += 1
    return counts


def _merge(connection: sqlite3.Connection, line: _CallLine) -> str:
    row = connection.execute(
        "SELECT key, value, checksum FROM calls WHERE key = ?", (line.key,)
    ).fetchone()
    if row and is_intact(*row):
        return "equal" if row[1] == line.value.encode() else "different"
    values = (line.key, line.value, line.checksum, line.engine, line.model, line.made)
    connection.execute(f"REPLACE {INSERT}", values)
    connection.execute("INSERT OR REPLACE INTO imported_calls VALUES (?)", (line.key,))
    return "new"


def _read_export(file: Path, packed: Any) -> Iterator[_CallLine]:
    reader = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True)
    number, value = 0, None
    try:
        for number, text in enumerate(iterate_lines(io.BufferedReader(reader)), start=1):
            where, value = f"{file}:{number}", decode_json(text)
            if number == 1 and value != {"format": FORMAT}:
                raise DataError(f"{where}: expected the format {FORMAT!r}")
            if number > 1 and "calls" not in value:
                line = check_json(_CallLine, value, where)
                # raises a ValueError for half a surrogate pair
                (line.engine + line.model).encode()
                if decode_row(line.key.encode(), line.value.encode(), line.checksum) is None:
                    raise DataError(f"{where}: damaged (call {line.key[:12]}…). Export it again")
                yield line
    except (zstandard.ZstdError, TypeError, ValueError, EOFError) as error:
        raise DataError(
            f"{file}:{number + 1}: not what kgqa cache export writes ({error}). Export it again"
        ) from error
    if value != {"calls": number - 2}:
        raise DataError(f"{file}: truncated after line {number:,}. Export or download it again")


def _text(value: object) -> str:
    return str(value, "utf-8", "replace") if isinstance(value, bytes) else str(value or "")
