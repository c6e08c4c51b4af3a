"""The call cache: all replies of engines, rankers and retrievers on disk, by the content of their calls.

A run resumes from it, and a sweep reuses its replies: the same command makes the same calls and finds their replies.
Several processes can share one file, and a committed reply survives `kill -9`. The first reply of a key stays. If a
row is damaged, it is dropped and counted, and its call is repeated.

If several processes need the same call, one makes it and the others wait for the reply. A row of `call_locks` has the
key and its owner. The owner holds a file lock of its name. The system releases it when the process ends, so no process
waits for a dead owner.
"""

# ruff: noqa: S608 - statements contain constants of this file only; values are bound

from __future__ import annotations

import errno
import json
import logging
import os
import secrets
import sqlite3
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kgqa.artifacts.call_schema import usage_of
from kgqa.cache.shared import SharedReplies
from kgqa.errors import DataError, KgqaError, StorageError
from kgqa.types import Json
from kgqa.util.fs import FIXES, SPACE, ensure_dir, is_locked, lock_file, network_disk
from kgqa.util.jsonio import MOST_BYTES, decode_stored
from kgqa.util.places import shared_replies
from kgqa.util.settings import name_of

FILE = "calls.sqlite"
# of the tables, as PRAGMA user_version
VERSION = 3
# key: see `kgqa.cache.key`. value: the reply as JSON. checksum: of both. engine, model: see `Origin`. made: seconds
# since 1970.
COLUMNS = (
    "key TEXT PRIMARY KEY, value TEXT, checksum INTEGER, engine TEXT, model TEXT, made INTEGER"
)
INSERT = "INTO calls VALUES (?, ?, ?, ?, ?, ?)"
# keys of calls from other machines
IMPORTED = "imported_calls (key TEXT PRIMARY KEY) WITHOUT ROWID"
# null if it is longer than any reply
VALUE = f"CASE WHEN length(value) <= {MOST_BYTES} THEN value END"
IS_IMPORTED = "EXISTS (SELECT 1 FROM imported_calls WHERE imported_calls.key = calls.key)"
NOT_IMPORTED = "DELETE FROM imported_calls WHERE key = ?"
# seconds since 1970: a later `made` is damaged
LATEST = 2**36
# seconds to wait for another program
TIMEOUT = 60.0
_ACCESS_ERRORS = ("readonly", "unable to open", "permission")
_DISK_ERRORS = ("full", "disk i/o error", "too big", *_ACCESS_ERRORS)
_LOCK_ERRORS = ("locked", "busy", "locking protocol")
_LOG = logging.getLogger("kgqa.cache")
LockState = Literal["locked", "elsewhere", "stored"]


@dataclass(frozen=True, slots=True)
class Origin:
    """The engine or ranker that answered, for `kgqa cache`. It is not part of the key."""

    engine: str = ""
    model: str = ""

    @classmethod
    def of(cls, identity: Mapping[str, Json]) -> Origin:
        """Return the origin for the identity of an engine, ranker or index."""
        if isinstance(retriever := identity.get("retriever"), Mapping):
            return cls.of(retriever)
        keys = ("model_name", "weights", "sha256", "model")
        model = next((identity[key] for key in keys if isinstance(identity.get(key), str)), "")
        return cls(name_of(identity), str(model)[:80])


@dataclass(frozen=True, slots=True)
class StoredUsage:
    """Tokens and seconds of a stored model call. made: seconds since 1970."""

    prompt: int
    # of the prompt, in the engine's prefix cache
    cached: int
    output: int
    seconds: float
    made: int
    generated: bool  # not a choice among options

    def work(self, written: float) -> float:
        """Return the uncached prompt tokens plus the output tokens times `written`."""
        return self.prompt - self.cached + written * self.output


def checksum(key: bytes, value: bytes) -> int:
    """Return the CRC-32 of a row. It detects every damage of up to 32 neighboring bits."""
    return zlib.crc32(value, zlib.crc32(key))


def is_intact(key: object, value: object, stored: object) -> bool:
    """Return whether a row is undamaged. Its texts are bytes."""
    return isinstance(key, bytes) and isinstance(value, bytes) and stored == checksum(key, value)


def decode_row(key: object, value: object, stored: object) -> Json | None:
    """Return the value of a row, or None if it is damaged: null is not a reply, and a checksum can be forged."""
    if not is_intact(key, value, stored):
        return None
    try:
        return decode_stored(value)  # type: ignore[arg-type]  # bytes, see `is_intact`
    except ValueError:
        return None


def _has_checksum(row: tuple[Any, ...]) -> bool:
    """Return whether a row of another machine is undamaged."""
    key, value = row[:2]
    return (
        isinstance(key, str)
        and isinstance(value, str)
        and row[2] == checksum(key.encode(), value.encode())
    )


class Database:
    """The open file. Use it in one thread at a time.

    Raises:
        DataError: the file is damaged or not a call cache.
        StorageError: the disk fails, or another program holds the file for more than `TIMEOUT` seconds.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self.translate_errors(), ExitStack() as on_error:
            self.connection = sqlite3.connect(
                path, timeout=TIMEOUT, check_same_thread=False, isolation_level=None
            )
            on_error.callback(self.connection.close)
            # a damaged row can have invalid UTF-8
            self.connection.text_factory = bytes
            # SQLite changes the journal without waiting
            with lock_file(path.with_name("open.lock")):
                self._set_up()
            on_error.pop_all()

    def _set_up(self) -> None:
        """Set the journal and create the tables. WAL is faster, but does not work across machines."""
        disk = network_disk(self.path.parent)
        self.connection.execute(f"PRAGMA journal_mode={'delete' if disk else 'wal'}")
        # With WAL and NORMAL a commit survives a killed process, but possibly not a power cut
        self.connection.execute(f"PRAGMA synchronous={'FULL' if disk else 'NORMAL'}")
        if disk:
            _LOG.info(
                "%s is on a network disk (%s); KGQA_CACHE=FOLDER on a local one is faster",
                self.path,
                disk,
            )
        (version,) = self.connection.execute("PRAGMA user_version").fetchone()
        (tables,) = self.connection.execute(
            "SELECT count(*) FROM sqlite_master WHERE type = 'table'"
        ).fetchone()
        if tables and version != VERSION:
            raise DataError(
                f"{self.path}: not a call cache of this version of kgqa. Set KGQA_CACHE to another folder."
            )
        with self.writing() as connection:
            connection.execute(f"CREATE TABLE IF NOT EXISTS calls ({COLUMNS}) WITHOUT ROWID")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS call_locks (key TEXT PRIMARY KEY, owner TEXT) WITHOUT ROWID"
            )
            connection.execute(f"CREATE TABLE IF NOT EXISTS {IMPORTED}")
            connection.execute(f"PRAGMA user_version = {VERSION}")

    def rows(self, statement: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query. Text comes as bytes."""
        with self.translate_errors():
            return self.connection.execute(statement, values).fetchall()

    def has_calls(self, origin: Origin) -> bool:
        statement = "SELECT 1 FROM calls WHERE engine = ? AND model = ? LIMIT 1"
        return bool(self.rows(statement, (origin.engine, origin.model)))

    def iterate(self, statement: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query one by one: there can be millions."""
        with self.translate_errors():
            yield from self.connection.execute(statement)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction. It is committed completely or not at all."""
        with self.translate_errors():
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self.connection
                self.connection.execute("COMMIT")
            finally:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Turn SQLite's errors into kgqa's."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            # SQLite's own message can quote damaged bytes
            reason = str(error).lower()
            if any(sign in reason for sign in _LOCK_ERRORS):
                raise StorageError(
                    f"{self.path}: another program uses it ({error}). No reply is lost. Wait until it ends, "
                    "then run the same command again."
                ) from error
            if isinstance(error, sqlite3.ProgrammingError) or any(
                sign in reason for sign in _DISK_ERRORS
            ):
                fix = (
                    FIXES[errno.EACCES] if any(each in reason for each in _ACCESS_ERRORS) else SPACE
                )
                raise StorageError(
                    f"{self.path}: {error}. {fix} or set KGQA_CACHE, then run the same command again."
                ) from error
            raise DataError(
                f"{self.path}: damaged call cache ({error}). Move it away and run the same command again."
            ) from error

    def close(self) -> None:
        self.connection.close()


class CallCache:
    """Replies as JSON values by key. Several threads can use it. All methods raise the errors of `Database`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self.damaged = 0  # rows that were dropped
        # keys of replies that this cache has returned, and that are from an imported file
        self.imported = set[str]()
        self._lock = threading.Lock()
        self._owner = f"{os.getpid()}-{secrets.token_hex(6)}"
        # keys of calls that this cache has locked
        self._locked: set[str] = set()
        try:
            ensure_dir(folder)
        except OSError as error:
            raise StorageError(
                f"{folder}: cannot create the call cache ({error}). Set KGQA_CACHE to another folder."
            ) from error
        self._database = Database(self.path)
        self._owner_lock = ExitStack()
        self._owner_lock.enter_context(lock_file(self._lock_of(self._owner)))
        shared = shared_replies()
        self._shared = SharedReplies(shared) if shared else None
        if self._shared is not None:
            self._read_shared(self._shared)

    def get(self, key: str) -> Json | None:
        """Return the reply of a key, or None. Drop a row without a reply."""
        with self._lock:
            rows = self._database.rows(
                f"SELECT {VALUE}, checksum, {IS_IMPORTED} FROM calls WHERE key = ?", (key,)
            )
        reply = decode_row(key.encode(), *rows[0][:2]) if rows else None
        if rows and reply is None:
            self.drop(key)
        elif rows and rows[0][2]:
            self.imported.add(key)
        return reply

    def put(self, items: Iterable[tuple[str, Json]], origin: Origin = Origin()) -> dict[str, Json]:
        """Store replies in one transaction and release their locks. A key keeps its first reply.

        Returns:
            Different replies that another process has stored before. Use them instead.
        """
        rows: dict[str, tuple[Any, ...]] = {}
        for key, value in items:
            # ASCII, because models can write lone surrogates
            text = json.dumps(value)
            check = checksum(key.encode(), text.encode())
            rows.setdefault(key, (key, text, check, origin.engine, origin.model, int(time.time())))
        with self._lock:
            with self._database.writing() as connection:
                added = connection.executemany(f"INSERT OR IGNORE {INSERT}", rows.values()).rowcount
                earlier = self._earlier(connection, rows.values()) if added < len(rows) else {}
                self._release(connection, rows.keys())
            self._locked -= rows.keys()
            if self._shared is not None:
                self._shared.append(row for key, row in rows.items() if key not in earlier)
        return earlier

    def _read_shared(self, shared: SharedReplies) -> None:
        """Add the replies of other machines. They count as replies of this cache."""
        intact = (row for row in shared.read() if _has_checksum(row))
        with self._database.writing() as connection:
            connection.executemany(f"INSERT OR IGNORE {INSERT}", intact)

    def _earlier(
        self, connection: sqlite3.Connection, rows: Iterable[tuple[Any, ...]]
    ) -> dict[str, Json]:
        """Return stored replies that differ from these rows. Replace damaged ones."""
        earlier = {}
        for row in rows:
            key, text = row[:2]
            value, check = connection.execute(
                f"SELECT {VALUE}, checksum FROM calls WHERE key = ?", (key,)
            ).fetchone()
            reply = decode_row(key.encode(), value, check)
            if reply is None:
                connection.execute(f"REPLACE {INSERT}", row)
                connection.execute(NOT_IMPORTED, (key,))
            elif value != text.encode():
                earlier[key] = reply
        return earlier

    def usages(self, origin: Origin, count: int) -> list[StoredUsage]:
        """Return the usage of the newest calls of a model. Skip calls without usage, such as counts of tokens."""
        statement = f"""SELECT key, {VALUE}, checksum, made FROM calls WHERE engine = ? AND model = ?
            AND typeof(made) = 'integer' AND made BETWEEN 0 AND ? ORDER BY made DESC LIMIT ?"""
        with self._lock:
            rows = self._database.rows(statement, (origin.engine, origin.model, LATEST, count))
        usages = []
        for *row, date in rows:
            reply = decode_row(*row)
            if used := usage_of(reply):
                numbers = (used.prompt_tokens, used.cached_tokens, used.output_tokens, used.seconds)
                usages.append(StoredUsage(*numbers, date, "text" in (reply or ())))
        return usages

    def has_calls(self, origin: Origin) -> bool:
        """Return whether there is any call of a model."""
        with self._lock:
            return self._database.has_calls(origin)

    def drop(self, key: str) -> None:
        """Delete a row that is damaged or not a reply to its call, and count it."""
        with self._lock, self._database.writing() as connection:
            connection.execute("DELETE FROM calls WHERE key = ?", (key,))
            connection.execute(NOT_IMPORTED, (key,))
        self.imported.discard(key)
        self.damaged += 1
        if self.damaged == 1:
            message = "%s: a damaged reply (%s…) was dropped. Its call is repeated. kgqa cache check counts all."
            _LOG.warning(message, self.path, key[:12])

    def lock_calls(self, keys: Iterable[str]) -> dict[str, LockState]:
        """Lock calls before they are made, and return the state of each.

        "locked": this cache makes the call. It holds the lock until `put`, `unlock` or `close`.
        "elsewhere": another running process makes it. "stored": there is a reply already.
        """
        states: dict[str, LockState] = {}
        with self._lock:
            with self._database.writing() as connection:
                for key in keys:
                    if connection.execute("SELECT 1 FROM calls WHERE key = ?", (key,)).fetchone():
                        states[key] = "stored"
                        continue
                    row = connection.execute(
                        "SELECT owner FROM call_locks WHERE key = ?", (key,)
                    ).fetchone()
                    states[key] = (
                        "elsewhere" if row and self._is_other(row[0].decode()) else "locked"
                    )
                    if states[key] == "locked":
                        connection.execute(
                            "REPLACE INTO call_locks VALUES (?, ?)", (key, self._owner)
                        )
            self._locked |= {key for key, state in states.items() if state == "locked"}
        return states

    def unlock(self, keys: Iterable[str]) -> None:
        """Release the locks of calls that are not made."""
        with self._lock:
            if own := self._locked.intersection(keys):
                with self._database.writing() as connection:
                    self._release(connection, own)
                self._locked -= own

    def _release(self, connection: sqlite3.Connection, keys: Iterable[str]) -> None:
        rows = [(key, self._owner) for key in self._locked.intersection(keys)]
        connection.executemany("DELETE FROM call_locks WHERE key = ? AND owner = ?", rows)

    def _is_other(self, owner: str) -> bool:
        """Return whether this is another owner that is still alive."""
        return owner != self._owner and is_locked(self._lock_of(owner))

    def _lock_of(self, owner: str) -> Path:
        return self.path.parent / "locks" / owner

    def __len__(self) -> int:
        with self._lock:
            return int(self._database.rows("SELECT count(*) FROM calls")[0][0])

    def close(self) -> None:
        """Release all locks and close the file."""
        with suppress(KgqaError):  # all replies are committed
            self.unlock(set(self._locked))
        with self._lock:
            self._owner_lock.close()
            self._lock_of(self._owner).unlink(missing_ok=True)
            self._database.close()
