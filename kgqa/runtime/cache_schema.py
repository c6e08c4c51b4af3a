"""The tables of a call cache, and how an older cache comes to have them.

    form 1   kgqa 0.1.0 and 0.2.0   calls(key, value)
    form 2   now                    checksum, origin and times of each call; who asks for what at this moment

`PRAGMA user_version` tells the form; it is 0 in a file of form 1.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

from kgqa.errors import DataError
from kgqa.runtime.database import Database
from kgqa.storage import replacing
from kgqa.types import Json

FORM = 2
COLUMNS = "key, value, checksum, origin, made, used"
# key: hash of the call and of who answers it; value: the reply as JSON; checksum: of both; origin: a row of origins;
# made: seconds since 1970, NULL: before form 2; used: the day a program last asked for it, in days since 1970
_CALLS = (
    "CREATE TABLE calls (key TEXT PRIMARY KEY, value TEXT, checksum INTEGER, origin INTEGER, made INTEGER, "
    "used INTEGER) WITHOUT ROWID"
)
_OTHERS = (
    "CREATE TABLE origins (id INTEGER PRIMARY KEY, engine TEXT, model TEXT, UNIQUE (engine, model))",
    "CREATE TABLE claims (key TEXT PRIMARY KEY, owner TEXT) WITHOUT ROWID",
)
_ADDED = ("checksum", "origin", "made", "used")
_LOG = logging.getLogger("kgqa.cache")
BAD = object()  # in place of a reply
_DECODED = json.JSONDecoder().decode


def checksum(key: bytes, value: bytes) -> int:
    """CRC-32: it finds every flipped bit, and every run of up to 32 of them."""
    return zlib.crc32(value, zlib.crc32(key))


def as_written(key: object, value: object, kept: object) -> bool:
    """Whether a row is what was committed."""
    return isinstance(key, bytes) and isinstance(value, bytes) and kept == checksum(key, value)


def reply_of(key: object, value: object, kept: object) -> Json | object:
    """The reply in a row as it was committed; `BAD` where the row is not what was written."""
    if not as_written(key, value, kept):
        return BAD
    try:
        return _DECODED(str(value, "utf-8"))  # type: ignore[call-overload]
    except (ValueError, RecursionError):
        return BAD


def prepare(database: Database) -> None:
    """Make the tables of a new file; bring an older one to the present form, with a copy of the old file beside it.

    Raises:
        DataError: the file is of a later form, or something else than a cache.
        StorageError: there is no room for the copy; nothing has changed.
    """
    if _form(database) == FORM:
        return
    with database.writing() as connection:
        form = _form(database)  # another process may have been faster
        if form == 0:
            connection.execute(_CALLS)
        elif form == 1:
            _upgrade(database, connection)
        if form != FORM:
            for statement in _OTHERS:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {FORM}")


def _form(database: Database) -> int:
    """0: an empty file."""
    version = int(str(database.rows("PRAGMA user_version")[0][0]))
    if version > FORM:
        raise DataError(
            f"{database.path}: a call cache of form {version}, of a later kgqa than this one (form {FORM}); "
            f"use that one, or set KGQA_CACHE to another folder"
        )
    if version:
        return version
    tables = {row[0] for row in database.rows("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if tables and b"calls" not in tables:
        raise DataError(f"{database.path}: a database, but no call cache; set KGQA_CACHE to another folder")
    return 1 if tables else 0


def _upgrade(database: Database, connection: sqlite3.Connection) -> None:
    count = connection.execute("SELECT count(*) FROM calls").fetchone()[0]
    kept = backup(database, "form1")
    _LOG.info(
        "%s: bringing %s calls to the present form; the old file is kept as %s", database.path, f"{count:,}", kept
    )
    for column in _ADDED:
        connection.execute(f"ALTER TABLE calls ADD COLUMN {column} INTEGER")
    connection.create_function("checksum_of", 2, checksum, deterministic=True)
    connection.execute("UPDATE calls SET checksum = checksum_of(CAST(key AS BLOB), CAST(value AS BLOB))")


def backup(database: Database, why: str) -> Path:
    """A copy of the file as it was last committed, beside it, under a name that is free; on the disk when this ends."""
    target = free_name(database.path, why)
    with (
        database.translated(),
        replacing(target) as fresh,
        closing(sqlite3.connect(fresh)) as copy,
        closing(sqlite3.connect(database.path, timeout=60)) as source,
    ):
        source.backup(copy)
        copy.execute("PRAGMA journal_mode=delete")
    return target


def free_name(path: Path, why: str) -> Path:
    """For a copy beside it: calls.WHY.sqlite, calls.WHY-2.sqlite, …"""
    place, number = path.with_name(f"calls.{why}.sqlite"), 1
    while place.exists():
        number += 1
        place = path.with_name(f"calls.{why}-{number}.sqlite")
    return place
