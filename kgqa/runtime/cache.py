"""The call cache: every reply an engine, ranker or retriever ever gave, on disk, by content.

It is how a run resumes and how a sweep reuses: the same command asks the same calls, and finds their replies.
SQLite in WAL mode: a reply that was committed survives `kill -9`, and several processes may share one file.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kgqa.errors import DataError, StorageError
from kgqa.storage import begun, made
from kgqa.types import Json

if TYPE_CHECKING:
    from collections.abc import Iterator

_FULL = ("full", "disk i/o error", "readonly", "unable to open")


class CallCache:
    """Replies as JSON values by key. Safe to use from several threads.

    Raises:
        DataError: the file is not a cache or is damaged.
        StorageError: the disk is full or not writable.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "calls.sqlite"
        self._lock = threading.Lock()
        try:
            made(folder)
        except OSError as error:
            raise StorageError(f"{folder}: cannot create the call cache ({error}); set KGQA_CACHE") from error
        with self._translated():
            self._connection = sqlite3.connect(
                begun(self.path), timeout=60, check_same_thread=False, isolation_level=None
            )
            self._connection.execute("PRAGMA journal_mode=WAL")
            # NORMAL: a commit survives the process, not necessarily a power cut; it never corrupts the file
            self._connection.execute("PRAGMA synchronous=NORMAL")
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS calls (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID"
            )

    def get(self, key: str) -> Json | None:
        """The reply kept under `key`, or None."""
        with self._lock, self._translated():
            row = self._connection.execute("SELECT value FROM calls WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        try:
            return json.loads(row[0])
        except (TypeError, ValueError) as error:
            raise self._damaged(f"unreadable value under {key[:12]}") from error

    def put(self, items: Iterable[tuple[str, Json]]) -> None:
        """Keep replies in one transaction; a key that is already there keeps its first reply."""
        rows = [(key, json.dumps(value)) for key, value in items]  # ASCII: models may write lone surrogates
        with self._lock, self._translated():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._connection.executemany("INSERT OR IGNORE INTO calls VALUES (?, ?)", rows)
                self._connection.execute("COMMIT")
            except sqlite3.Error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def __len__(self) -> int:
        with self._lock, self._translated():
            count: int = self._connection.execute("SELECT count(*) FROM calls").fetchone()[0]
        return count

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            if any(sign in str(error).lower() for sign in _FULL):
                raise StorageError(
                    f"{self.path}: {error}; make room or set KGQA_CACHE, then run the same command again"
                ) from error
            raise self._damaged(str(error)) from error

    def _damaged(self, reason: str) -> DataError:
        return DataError(f"{self.path}: damaged call cache ({reason}); move it away and run the same command again")
