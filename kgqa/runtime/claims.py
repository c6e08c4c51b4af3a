"""Who is asking for which reply at this moment, so that of several processes only one pays for it.

A claim is a row: key and owner. The owner holds a lock on a file of its name for as long as it lives, and the system
lets go of a killed process's: so nobody waits for the dead, whatever machine's or container's process it was.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from collections.abc import Set
from contextlib import ExitStack, suppress
from pathlib import Path

from kgqa.storage import in_use, locked

_FORGOTTEN = 86_400  # seconds after which the file of an owner that died without claims is removed


class Claims:
    """Those of one open cache."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "claims"
        self._name = f"{os.getpid()}-{secrets.token_hex(6)}"
        self._held = ExitStack()
        self._owner: str | None = None  # not before the first claim
        self.keys: set[str] = set()

    def take(self, connection: sqlite3.Connection, key: str) -> bool:
        """Claim a reply inside a transaction; False: a living process has."""
        if self._owner is None:
            self._held.enter_context(locked(self._folder / self._name))
            self._owner = self._name
            self._sweep()
        added = connection.execute("INSERT OR IGNORE INTO claims VALUES (?, ?)", (key, self._owner)).rowcount
        if not added:
            (owner,) = connection.execute("SELECT owner FROM claims WHERE key = ?", (key,)).fetchone()
            name = str(owner, "utf-8", "replace")
            if self.lives(name):
                return False
            connection.execute("UPDATE claims SET owner = ? WHERE key = ?", (self._owner, key))
        self.keys.add(key)
        return True

    def lives(self, owner: str) -> bool:
        """Whether this is another owner, of this process or another, that has not ended."""
        return owner != self._owner and "/" not in owner and in_use(self._folder / owner)

    def give_back(self, connection: sqlite3.Connection, keys: Set[str]) -> None:
        """Inside a transaction: who waits for these asks by itself, unless a reply was kept."""
        done = [(key, self._owner) for key in keys & self.keys]
        connection.executemany("DELETE FROM claims WHERE key = ? AND owner = ?", done)

    def close(self) -> None:
        self._held.close()
        if self._owner is not None:
            with suppress(OSError):
                (self._folder / self._owner).unlink()

    def _sweep(self) -> None:
        """Remove what processes that were killed left."""
        with suppress(OSError):
            for file in self._folder.iterdir():
                if time.time() - file.stat().st_mtime > _FORGOTTEN and not in_use(file):
                    file.unlink()
