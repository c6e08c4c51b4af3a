"""The call cache: every reply an engine, ranker or retriever ever gave, on disk, by content.

It is how a run resumes and how a sweep reuses: the same command asks the same calls, and finds their replies.
SQLite in WAL mode: a reply that was committed survives `kill -9`, and several processes may share one file: the first
reply of a key stays, and all go on with that one. A row that is not what was written is taken for missing.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kgqa.errors import KgqaError, StorageError
from kgqa.runtime.cache_schema import BAD, as_written, checksum, prepare, reply_of
from kgqa.runtime.claims import Claims
from kgqa.runtime.database import Database
from kgqa.storage import begun, made
from kgqa.types import Json

FILE = "calls.sqlite"
DAY = 86_400
Claimed = Literal["mine", "theirs", "kept"]
_FIND = "SELECT value, checksum, used FROM calls WHERE key = ?"
_BESIDE = (
    "SELECT * FROM (SELECT * FROM calls WHERE key < ? ORDER BY key DESC LIMIT 1) "
    "UNION ALL SELECT * FROM (SELECT * FROM calls WHERE key > ? ORDER BY key LIMIT 1)"
)
_NOTED = 10_000  # keys asked for whose day of use is still to be written
_LOG = logging.getLogger("kgqa.cache")


@dataclass(frozen=True, slots=True)
class Origin:
    """Who answers: for people and for `kgqa cache`; keys alone decide what is found."""

    engine: str = ""
    model: str = ""

    @classmethod
    def of(cls, identity: Mapping[str, Json]) -> Origin:
        """Of what an engine, ranker or index says of itself."""
        kind = next((key for key in ("engine", "ranker", "retriever") if key in identity), "")
        named = identity.get(kind, "")
        if isinstance(named, Mapping):
            return cls.of(named)
        model = identity.get("model") or identity.get("weights") or identity.get("sha256") or ""
        return cls(str(named), str(model)[:80])


class CallCache:
    """Replies as JSON values by key. Safe to use from several threads.

    notes: the day on which a reply was last asked for is written.

    Raises:
        DataError: the file is not a cache or is damaged.
        StorageError: the disk is full or not writable, or another program holds the file.
    """

    def __init__(self, folder: Path, *, notes: bool = True) -> None:
        self.path, self._notes = folder / FILE, notes
        self.damaged = 0  # replies found that were not what was written, and taken for missing
        self.recognised = 0  # rows found under a damaged key, by their checksum
        self._lock = threading.Lock()
        try:
            made(folder)
            begun(self.path)
        except OSError as error:
            raise StorageError(f"{folder}: cannot create the call cache ({error}); set KGQA_CACHE") from error
        self._database = Database(self.path)
        self._connection = self._database.connection
        self._claims = Claims(folder)
        self._rejected: set[str] = set()  # keys whose next reply takes the place of the one that is kept
        self._counted: set[str] = set()  # those that `damaged` counts
        self._today = int(time.time()) // DAY
        self._asked_for: list[str] = []  # today, and not yet noted
        with ExitStack() as otherwise:
            otherwise.callback(self._database.close)
            prepare(self._database)
            otherwise.pop_all()

    def get(self, key: str) -> Json | None:
        """The reply kept under `key`, or None."""
        with self._lock:
            rows = self._database.rows(_FIND, (key,))
            if not rows:
                return self._beside(key)
            ((value, kept, used),) = rows
            reply = reply_of(key.encode(), value, kept)
            if reply is BAD:
                self._reject(key)
                return None
            if used != self._today and self._notes:
                self._asked_for.append(key)
                if len(self._asked_for) >= _NOTED:
                    self._note_use()
        return reply

    def put(self, items: Iterable[tuple[str, Json]], origin: Origin | None = None) -> dict[str, Json]:
        """Keep replies in one transaction; a key that is already there keeps its first reply.

        Gives those first replies, of the keys where they are others than `items` has: they are what counts.
        """
        now, texts = int(time.time()), dict[str, str]()
        for key, value in items:
            texts.setdefault(key, json.dumps(value))  # ASCII: models may write lone surrogates
        with self._lock:
            with self._database.writing() as connection:
                made_by = None if origin is None else self._origin(connection, origin)
                rows = [
                    (key, text, checksum(key.encode(), text.encode()), made_by, now, self._today)
                    for key, text in texts.items()
                ]
                added = connection.executemany("INSERT OR IGNORE INTO calls VALUES (?, ?, ?, ?, ?, ?)", rows).rowcount
                earlier = self._kept_before(connection, rows) if added < len(rows) else {}
                self._claims.give_back(connection, texts.keys())
            self._claims.keys -= texts.keys()
            self._rejected -= texts.keys()
        return earlier

    def _kept_before(self, connection: sqlite3.Connection, rows: Iterable[tuple[Any, ...]]) -> dict[str, Json]:
        """The replies that stand, of the rows that found others; damaged and rejected ones give way to the row."""
        earlier = {}
        for row in rows:
            key, text = row[:2]
            value, kept = connection.execute("SELECT value, checksum FROM calls WHERE key = ?", (key,)).fetchone()
            reply = reply_of(key.encode(), value, kept)
            if reply is BAD or key in self._rejected:
                connection.execute("REPLACE INTO calls VALUES (?, ?, ?, ?, ?, ?)", row)
            elif value != text.encode():
                earlier[key] = reply
        return earlier

    def _beside(self, key: str) -> Json | None:
        """The reply to a missing key after all, if a row that lies where its own would is its own but for the key.

        The checksum tells; the row is kept anew under the right key. Another damaged row there is counted: it may have
        led the search astray.
        """
        rows = self._database.rows(_BESIDE, (key, key))
        damaged = [row for row in rows if not as_written(*row[:3])]
        own = [row for row in damaged if as_written(key.encode(), *row[1:3])]
        if not own:
            if damaged:
                self._count_damaged(key)
            return None
        _, value, kept, *others = own[0]
        self.recognised += 1
        if self.recognised == 1:
            _LOG.warning("%s: a damaged key (%s…) was mended; kgqa cache check tells of all", self.path, key[:12])
        with suppress(KgqaError), self._database.writing() as connection:
            row = (key, str(value, "utf-8"), kept, *others)
            connection.execute("INSERT OR IGNORE INTO calls VALUES (?, ?, ?, ?, ?, ?)", row)
        return reply_of(key.encode(), value, kept)

    def reject(self, key: str) -> None:
        """What is kept is no reply to its call: it is missing from now on, and the next one takes its place."""
        with self._lock:
            self._reject(key)

    def _reject(self, key: str) -> None:
        self._rejected.add(key)
        self._count_damaged(key)

    def _count_damaged(self, key: str) -> None:
        if key in self._counted:
            return
        self._counted.add(key)
        self.damaged += 1
        if self.damaged == 1:
            _LOG.warning(
                "%s: a damaged reply (%s…) is asked for again; kgqa cache check tells of all", self.path, key[:12]
            )

    def claim(self, keys: Iterable[str]) -> dict[str, Claimed]:
        """What may be asked: "mine", and nobody else asks until this cache has put it, gives it back or is closed.

        "theirs": another living process is asking. "kept": there is a reply by now.
        """
        claimed: dict[str, Claimed] = {}
        with self._lock, self._database.writing() as connection:
            for key in keys:
                there = connection.execute("SELECT 1 FROM calls WHERE key = ?", (key,)).fetchone()
                if there and key not in self._rejected:
                    claimed[key] = "kept"
                else:
                    claimed[key] = "mine" if self._claims.take(connection, key) else "theirs"
        return claimed

    def claimed_elsewhere(self, keys: Iterable[str]) -> set[str]:
        """Those of the keys that another living process is still asking for. Only reads."""
        with self._lock:
            wanted = [(key, self._database.rows("SELECT owner FROM claims WHERE key = ?", (key,))) for key in keys]
        owners = {key: str(rows[0][0], "utf-8", "replace") for key, rows in wanted if rows}
        alive = {owner for owner in set(owners.values()) if self._claims.lives(owner)}
        return {key for key, owner in owners.items() if owner in alive}

    def give_back(self, keys: Iterable[str]) -> None:
        """Take back claims on what will not be asked after all."""
        with self._lock:
            mine = self._claims.keys.intersection(keys)
            if not mine:
                return
            with self._database.writing() as connection:
                self._claims.give_back(connection, mine)
            self._claims.keys -= mine

    def __len__(self) -> int:
        with self._lock:
            return int(str(self._database.rows("SELECT count(*) FROM calls")[0][0]))

    def close(self) -> None:
        if self.damaged > 1:
            _LOG.warning("%s: %d damaged replies were asked for again", self.path, self.damaged)
        with suppress(KgqaError):  # what is owed is bookkeeping; all replies are committed
            self.give_back(set(self._claims.keys))
        with self._lock:
            with suppress(KgqaError):
                self._note_use()
            self._claims.close()
            self._database.close()

    def _note_use(self) -> None:
        """Write on which day replies were last asked for: once a day for each, never in the way of another program."""
        noted, self._asked_for = self._asked_for, []
        if noted and not self._connection.in_transaction:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                rows = [(self._today, key) for key in noted]
                self._connection.executemany("UPDATE calls SET used = ? WHERE key = ?", rows)
                self._connection.execute("COMMIT")
            except sqlite3.OperationalError:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def _origin(self, connection: sqlite3.Connection, origin: Origin) -> int:
        row = (origin.engine, origin.model)
        find = "SELECT id FROM origins WHERE engine = ? AND model = ?"
        if not (found := connection.execute(find, row).fetchone()):
            connection.execute("INSERT INTO origins (engine, model) VALUES (?, ?)", row)
            found = connection.execute(find, row).fetchone()
        number: int = found[0]
        return number
