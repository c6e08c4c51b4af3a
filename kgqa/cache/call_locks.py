"""Locks on calls: of several processes that share a cache, one makes a call and the others wait for its reply.

A lock is a row with the key and its owner. The owner holds a file lock of its name while it lives. The system releases
the file lock of a killed process, so nobody waits for a dead owner.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Set
from contextlib import ExitStack, suppress
from pathlib import Path

from kgqa.util.fs import is_locked, lock_file


class CallLocks:
    """The locks of one open cache. All methods run inside a transaction."""

    def __init__(self, folder: Path) -> None:
        self.owner = f"{os.getpid()}-{secrets.token_hex(6)}"
        self.keys: set[str] = set()
        self._folder = folder / "claims"
        self._file_lock = ExitStack()
        self._started = False

    def acquire(self, connection: sqlite3.Connection, key: str) -> bool:
        """Lock a call. Return False if another living process holds the lock."""
        if not self._started:
            self._file_lock.enter_context(lock_file(self._folder / self.owner))
            self._started = True
        if not connection.execute("INSERT OR IGNORE INTO claims VALUES (?, ?)", (key, self.owner)).rowcount:
            (owner,) = connection.execute("SELECT owner FROM claims WHERE key = ?", (key,)).fetchone()
            if self.is_alive(str(owner, "utf-8", "replace")):
                return False
            connection.execute("UPDATE claims SET owner = ? WHERE key = ?", (self.owner, key))
        self.keys.add(key)
        return True

    def is_alive(self, owner: str) -> bool:
        """Return whether this is another owner, in this process or another one, that has not ended."""
        return owner != self.owner and "/" not in owner and is_locked(self._folder / owner)

    def release(self, connection: sqlite3.Connection, keys: Set[str]) -> None:
        """Delete the rows of these keys. The caller removes the keys from `keys` after the commit."""
        rows = [(key, self.owner) for key in keys & self.keys]
        connection.executemany("DELETE FROM claims WHERE key = ? AND owner = ?", rows)

    def close(self) -> None:
        """Release the file lock."""
        self._file_lock.close()
        if self._started:
            with suppress(OSError):
                (self._folder / self.owner).unlink()
