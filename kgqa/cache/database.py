"""The SQLite file of a call cache: its table, its journal, waiting for other programs, and its errors."""

from __future__ import annotations

import json
import logging
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from kgqa.errors import DataError, StorageError
from kgqa.types import Json
from kgqa.util.fs import network_disk

T = TypeVar("T")
FORM = 3  # of the table, as PRAGMA user_version
# key: see `kgqa.cache.key`. value: the reply as JSON. checksum: of both. engine, model: who answered, for `kgqa cache`.
# made: seconds since 1970.
_COLUMNS = "key TEXT PRIMARY KEY, value TEXT, checksum INTEGER, engine TEXT, model TEXT, made INTEGER"
TABLES = (
    f"CREATE TABLE calls ({_COLUMNS}) WITHOUT ROWID",
    "CREATE TABLE claims (key TEXT PRIMARY KEY, owner TEXT) WITHOUT ROWID",
)
WAIT_WARNING = 5.0  # seconds of waiting for another program before a log line
WAIT_LIMIT = 600.0  # seconds after which waiting ends
_TRY = 1.0  # seconds of waiting inside SQLite, which Ctrl-C does not interrupt
_DISK_ERRORS = ("full", "disk i/o error", "readonly", "unable to open", "permission", "too big")
_LOCK_ERRORS = ("locked", "busy", "locking protocol")
_LOG = logging.getLogger("kgqa.cache")
BAD = object()  # in place of a reply


def checksum(key: bytes, value: bytes) -> int:
    """Return the CRC-32 of a row, which finds every flipped bit and every run of up to 32 of them."""
    return zlib.crc32(value, zlib.crc32(key))


def reply_of(key: object, value: object, stored: object) -> Json | object:
    """Return the reply of a row, or `BAD` if the row is not what was written."""
    if not (isinstance(key, bytes) and isinstance(value, bytes) and stored == checksum(key, value)):
        return BAD
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return BAD


class Database:
    """An open file. Use it in one thread at a time.

    Raises:
        DataError: the file is damaged or not a call cache.
        StorageError: the disk refuses, or another program holds the file longer than `WAIT_LIMIT`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self.translate_errors(), ExitStack() as on_error:
            self.connection = sqlite3.connect(path, timeout=_TRY, check_same_thread=False, isolation_level=None)
            on_error.callback(self.connection.close)
            self.connection.text_factory = bytes  # a damaged row can hold invalid UTF-8
            self._set_journal()
            self._create_tables()
            on_error.pop_all()

    def _set_journal(self) -> None:
        """Use the write-ahead log where the disk supports it: readers and writers do not wait for each other."""
        disk = network_disk(self.path.parent)
        journal = "delete" if disk else "wal"
        row = self.retry(lambda: self.connection.execute(f"PRAGMA journal_mode={journal}").fetchone())
        mode = row[0].decode().lower()
        # NORMAL under WAL: a commit survives the process, not necessarily a power cut. It never corrupts the file.
        self.connection.execute(f"PRAGMA synchronous={'NORMAL' if mode == 'wal' else 'FULL'}")
        if disk:
            _LOG.info(
                "%s is on a network disk (%s). kgqa uses SQLite's journal %s there, which is slower. "
                "Set KGQA_CACHE to a folder on a local disk for speed.", self.path, disk, mode,
            )  # fmt: skip

    def _create_tables(self) -> None:
        if self._form() == FORM:
            return
        with self.writing() as connection:
            if self._form() != FORM:  # another process can be faster
                for statement in TABLES:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {FORM}")

    def _form(self) -> int:
        form = int(self.rows("PRAGMA user_version")[0][0])
        tables = self.rows("SELECT count(*) FROM sqlite_master WHERE type = 'table'")[0][0]
        if tables and form != FORM:
            raise DataError(f"{self.path}: not a call cache of this version of kgqa; set KGQA_CACHE to another folder")
        return form

    def retry(self, act: Callable[[], T]) -> T:
        """Run one statement again while another program holds the file."""
        started, reported = time.monotonic(), False
        while True:
            try:
                return act()
            except sqlite3.OperationalError as error:
                if not _is_lock(error):
                    raise
                waited = time.monotonic() - started
                if waited > WAIT_LIMIT:
                    raise self._lock_error(error) from error
            if waited > WAIT_WARNING and not reported:
                reported = True
                event = {"event": "wait", "cause": f"another program holds {self.path}", "seconds": 30.0}
                _LOG.info("%s: another program holds it; waiting for it", self.path, extra={"fields": event})
            time.sleep(0.02)

    def rows(self, statement: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query. Text comes as bytes."""
        with self.translate_errors():
            return self.retry(lambda: self.connection.execute(statement, values).fetchall())

    def iterate(self, statement: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query, of which there can be millions."""
        with self.translate_errors():
            yield from self.retry(lambda: self.connection.execute(statement))

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction, which is committed as a whole or not at all."""
        with self.translate_errors():
            self.retry(lambda: self.connection.execute("BEGIN IMMEDIATE"))
            try:
                yield self.connection
                self.retry(lambda: self.connection.execute("COMMIT"))
            finally:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Turn SQLite's errors into kgqa's."""
        try:
            yield
        except sqlite3.ProgrammingError as error:
            raise StorageError(f"{self.path}: {error}") from error
        except sqlite3.DatabaseError as error:
            if _is_lock(error):
                raise self._lock_error(error) from error
            if any(sign in str(error).lower() for sign in _DISK_ERRORS):
                raise StorageError(
                    f"{self.path}: {error}; make room or set KGQA_CACHE, then run the same command again"
                ) from error
            raise self._damage_error(str(error)) from error
        except UnicodeDecodeError as error:  # SQLite's own message quotes damaged bytes
            raise self._damage_error("its tables cannot be read") from error

    def _lock_error(self, error: sqlite3.Error) -> StorageError:
        return StorageError(
            f"{self.path}: another program holds it ({error}); nothing is lost: wait for it or end it, "
            f"then run the same command again"
        )

    def _damage_error(self, reason: str) -> DataError:
        return DataError(
            f"{self.path}: damaged call cache ({reason}); kgqa cache check --repair saves its readable calls, "
            f"or move it away and run the same command again"
        )

    def close(self) -> None:
        self.connection.close()


def _is_lock(error: sqlite3.Error) -> bool:
    return any(sign in str(error).lower() for sign in _LOCK_ERRORS)
