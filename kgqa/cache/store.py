"""The call cache: every reply of an engine, ranker or retriever, on disk, by the content of its call.

A run resumes and a sweep reuses replies through it: the same command makes the same calls and finds their replies.
A committed reply survives `kill -9`, and several processes can share one file. The first reply of a key stays. A row
that is not what was written is dropped, counted, and its call is made again.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kgqa.cache.call_locks import CallLocks
from kgqa.cache.database import BAD, Database, checksum, reply_of
from kgqa.errors import KgqaError, StorageError
from kgqa.types import Json
from kgqa.util.fs import create_private, ensure_dir

FILE = "calls.sqlite"
LockState = Literal["locked", "elsewhere", "stored"]
INSERT = "INTO calls VALUES (?, ?, ?, ?, ?, ?)"
_LOG = logging.getLogger("kgqa.cache")


@dataclass(frozen=True, slots=True)
class Origin:
    """The engine or ranker that answered, for `kgqa cache`. It does not decide which reply is found."""

    engine: str = ""
    model: str = ""

    @classmethod
    def of(cls, identity: Mapping[str, Json]) -> Origin:
        """Return the origin that an identity of an engine, ranker or index names."""
        kind = next((key for key in ("engine", "ranker", "retriever") if key in identity), "")
        name = identity.get(kind, "")
        if isinstance(name, Mapping):
            return cls.of(name)
        model = identity.get("model") or identity.get("weights") or identity.get("sha256") or ""
        return cls(str(name), str(model)[:80])


class CallCache:
    """Replies as JSON values by key. Several threads can use it.

    Raises:
        DataError: the file is not a cache or is damaged.
        StorageError: the disk is full or not writable, or another program holds the file.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self.damaged = 0  # rows that were dropped
        self._lock = threading.Lock()
        try:
            ensure_dir(folder)
            create_private(self.path)
        except OSError as error:
            raise StorageError(f"{folder}: cannot create the call cache ({error}); set KGQA_CACHE") from error
        self._database = Database(self.path)
        self._call_locks = CallLocks(folder)

    def get(self, key: str) -> Json | None:
        """Return the reply of a key, or None."""
        with self._lock:
            rows = self._database.rows("SELECT value, checksum FROM calls WHERE key = ?", (key,))
        if not rows:
            return None
        reply = reply_of(key.encode(), *rows[0])
        if reply is BAD:
            self.drop(key)
            return None
        return reply

    def put(self, items: Iterable[tuple[str, Json]], origin: Origin = Origin()) -> dict[str, Json]:
        """Store replies in one transaction and release their locks. A key keeps its first reply.

        Returns:
            The replies that another process stored first, where they differ from `items`. Use them instead.
        """
        texts: dict[str, str] = {}
        for key, value in items:
            texts.setdefault(key, json.dumps(value))  # ASCII, because models can write lone surrogates
        rows = [
            (key, text, checksum(key.encode(), text.encode()), origin.engine, origin.model, int(time.time()))
            for key, text in texts.items()
        ]
        with self._lock:
            with self._database.writing() as connection:
                added = connection.executemany(f"INSERT OR IGNORE {INSERT}", rows).rowcount
                earlier = self._earlier(connection, rows) if added < len(rows) else {}
                self._call_locks.release(connection, texts.keys())
            self._call_locks.keys -= texts.keys()
        return earlier

    def _earlier(self, connection: Any, rows: Iterable[tuple[Any, ...]]) -> dict[str, Json]:
        """Return stored replies that differ from these rows. A row replaces a damaged one."""
        earlier = {}
        for row in rows:
            key, text = row[:2]
            value, stored = connection.execute("SELECT value, checksum FROM calls WHERE key = ?", (key,)).fetchone()
            reply = reply_of(key.encode(), value, stored)
            if reply is BAD:
                connection.execute(f"REPLACE {INSERT}", row)
            elif value != text.encode():
                earlier[key] = reply
        return earlier

    def drop(self, key: str) -> None:
        """Delete a row that is damaged or not a reply to its call, and count it."""
        with self._lock, self._database.writing() as connection:
            connection.execute("DELETE FROM calls WHERE key = ?", (key,))
        self.damaged += 1
        if self.damaged == 1:
            _LOG.warning(
                "%s: a damaged reply (%s…) is dropped and its call made again; kgqa cache check lists all",
                self.path,
                key[:12],
            )

    def lock_calls(self, keys: Iterable[str]) -> dict[str, LockState]:
        """Lock calls before they are made.

        "locked": this cache makes the call. It holds the lock until `put`, `unlock` or `close`.
        "elsewhere": another living process makes it. "stored": there is a reply by now.
        """
        states: dict[str, LockState] = {}
        with self._lock, self._database.writing() as connection:
            for key in keys:
                if connection.execute("SELECT 1 FROM calls WHERE key = ?", (key,)).fetchone():
                    states[key] = "stored"
                else:
                    states[key] = "locked" if self._call_locks.acquire(connection, key) else "elsewhere"
        return states

    def locked_elsewhere(self, keys: Iterable[str]) -> set[str]:
        """Return the keys that another living process still has locked."""
        statement = "SELECT owner FROM claims WHERE key = ?"
        with self._lock:
            rows = {key: self._database.rows(statement, (key,)) for key in keys}
        owners = {key: str(found[0][0], "utf-8", "replace") for key, found in rows.items() if found}
        alive = {owner for owner in set(owners.values()) if self._call_locks.is_alive(owner)}
        return {key for key, owner in owners.items() if owner in alive}

    def unlock(self, keys: Iterable[str]) -> None:
        """Release locks of calls that are not made after all."""
        with self._lock:
            own = self._call_locks.keys.intersection(keys)
            if own:
                with self._database.writing() as connection:
                    self._call_locks.release(connection, own)
                self._call_locks.keys -= own

    def __len__(self) -> int:
        with self._lock:
            return int(self._database.rows("SELECT count(*) FROM calls")[0][0])

    def close(self) -> None:
        """Release all locks and close the file."""
        if self.damaged > 1:
            _LOG.warning("%s: %d damaged replies were dropped", self.path, self.damaged)
        with suppress(KgqaError):  # all replies are committed
            self.unlock(set(self._call_locks.keys))
        with self._lock:
            self._call_locks.close()
            self._database.close()
