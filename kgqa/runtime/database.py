"""One SQLite file: opened as its disk allows, waited for while another program holds it, its errors told apart.

A lock is no damage: whoever meets one waits, says so in one line, and in the end names who holds the file.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from kgqa.errors import DataError, StorageError
from kgqa.storage import network_disk

T = TypeVar("T")
TOLD_AFTER = 5.0  # seconds of waiting for another program before a line says so
TOLD_FOR = 30.0  # seconds that `kgqa status` shows it
PATIENCE = 600.0  # seconds after which waiting ends
_TRY = 1.0  # seconds of waiting inside SQLite, which Ctrl-C does not interrupt
_REFUSED = ("full", "disk i/o error", "readonly", "unable to open", "permission", "too big")
_HELD = ("locked", "busy", "locking protocol")
_LOG = logging.getLogger("kgqa.cache")


class Database:
    """Give it to one thread at a time.

    Raises:
        DataError: the file is damaged or no database.
        StorageError: the disk refuses, or another program holds the file for longer than `PATIENCE`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self.translated():
            self.connection = sqlite3.connect(path, timeout=_TRY, check_same_thread=False, isolation_level=None)
            with ExitStack() as otherwise:
                otherwise.callback(self.connection.close)
                self.connection.text_factory = bytes  # a flipped bit may leave what is no UTF-8: a row's damage alone
                self._settle()
                otherwise.pop_all()

    def _settle(self) -> None:
        """WAL where the disk can: readers and writers of several processes do not wait for each other."""
        disk = network_disk(self.path.parent)
        wanted = "delete" if disk else "wal"
        row = self.patiently(lambda: self.connection.execute(f"PRAGMA journal_mode={wanted}").fetchone())
        mode = row[0].decode().lower()
        # NORMAL under WAL: a commit survives the process, not necessarily a power cut; it never corrupts the file
        self.connection.execute(f"PRAGMA synchronous={'NORMAL' if mode == 'wal' else 'FULL'}")
        if disk:
            _LOG.info(
                "%s is on a network disk (%s): kept with a journal that works there (%s), which is slower; "
                "KGQA_CACHE=DIR on a local disk is faster", self.path, disk, mode,
            )  # fmt: skip
        elif mode != "wal":
            _LOG.info("%s: this disk cannot do SQLite's write-ahead log; kept with journal %s", self.path, mode)

    def patiently(self, act: Callable[[], T]) -> T:
        """Do one statement, again and again while another program holds the file."""
        started, told = time.monotonic(), False
        while True:
            try:
                return act()
            except sqlite3.OperationalError as error:
                if not _is_held(error):
                    raise
                waited = time.monotonic() - started
                if waited > PATIENCE:
                    raise self._held(error) from error
            if waited > TOLD_AFTER and not told:
                told = True
                wait = {"event": "wait", "cause": f"another program holds {self.path}", "seconds": TOLD_FOR}
                _LOG.info(
                    "%s: another program holds it%s; waiting for it",
                    self.path,
                    holders(self.path),
                    extra={"told": wait},
                )
            time.sleep(0.02)

    def rows(self, statement: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """All rows of a statement that reads; text comes as bytes."""
        with suppress(sqlite3.Error, UnicodeDecodeError):  # mostly nothing is in the way
            return self.connection.execute(statement, values).fetchall()
        with self.translated():
            return self.patiently(lambda: self.connection.execute(statement, values).fetchall())

    def each(self, statement: str) -> Iterator[tuple[Any, ...]]:
        """The same, one after the other: there may be millions."""
        with self.translated():
            yield from self.patiently(lambda: self.connection.execute(statement))

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction: all of it is kept, or nothing."""
        with self.translated():
            self.patiently(lambda: self.connection.execute("BEGIN IMMEDIATE"))
            try:
                yield self.connection
                self.patiently(lambda: self.connection.execute("COMMIT"))
            finally:
                if self.connection.in_transaction:  # not committed
                    self.connection.execute("ROLLBACK")

    @contextmanager
    def translated(self) -> Iterator[None]:
        """SQLite's errors as ours."""
        try:
            yield
        except sqlite3.ProgrammingError as error:
            raise StorageError(f"{self.path}: {error}") from error
        except sqlite3.DatabaseError as error:
            text = str(error).lower()
            if _is_held(error):
                raise self._held(error) from error
            if any(sign in text for sign in _REFUSED):
                raise StorageError(
                    f"{self.path}: {error}; make room or set KGQA_CACHE, then run the same command again"
                ) from error
            raise damaged(self.path, str(error)) from error
        except UnicodeDecodeError as error:  # SQLite's own message quotes damaged bytes
            raise damaged(self.path, "its tables cannot be read") from error

    def _held(self, error: sqlite3.Error) -> StorageError:
        who = holders(self.path) or f" ({error})"
        return StorageError(
            f"{self.path}: another program holds it{who}; nothing is lost: wait for it or end it, "
            f"then run the same command again"
        )

    def close(self) -> None:
        self.connection.close()


def damaged(path: Path, reason: str) -> DataError:
    return DataError(
        f"{path}: damaged call cache ({reason}); kgqa cache check --repair saves what is whole, "
        f"or move it away and run the same command again"
    )


def _is_held(error: sqlite3.Error) -> bool:
    return any(sign in str(error).lower() for sign in _HELD)


def holders(path: Path) -> str:
    """Who has a lock for writing on the file or its log, e.g. " (process 17)", as Linux tells; "" where nobody does."""
    files = [path.with_name(f"{path.name}{part}") for part in ("", "-wal", "-shm")]
    try:
        inodes = {str(file.stat().st_ino) for file in files if file.exists()}
        lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except OSError:
        return ""
    found = {
        int(words[4])
        for words in lines
        if len(words) > 5 and words[3] == "WRITE" and words[5].rpartition(":")[2] in inodes and words[4].isdigit()
    }
    named = ", ".join(map(str, sorted(found - {os.getpid()})))
    return f" (process {named})" if named else ""
