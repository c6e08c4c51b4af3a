"""Vectors kept from one run to the next, beside the call cache: a text that was encoded is not encoded again.

Only of encoders whose vectors are the same to the last bit whatever else is in their batch (`Reproducible`): a score is
then the same with this file, without it, and with a part of it. Each row has a checksum; one that is not what was
written is made anew. Whatever else is wrong with the file costs time and no result, and is told in one line.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from kgqa.errors import StorageError
from kgqa.types import Json
from kgqa.util.fs import AGAIN, call_cache, create_private, explain_storage_errors

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FILE = "vectors.sqlite"
MOST = 200_000  # vectors; with 384 dimensions 420 MB. Those made first go first
_FORM = 1
_PATIENCE = 5.0  # seconds for another process that writes; encoding one text takes about a tenth of one
_TABLE = (
    "CREATE TABLE IF NOT EXISTS vectors (place INTEGER PRIMARY KEY, key BLOB UNIQUE, vector BLOB, checksum INTEGER)"
)
REMEDY = "kgqa cache check --repair"
Kind = Literal["query", "passage"]
_LOG = logging.getLogger("kgqa.cache")


@runtime_checkable
class Reproducible(Protocol):
    """An encoder whose vector of a text depends on nothing but the text."""

    def storage_key(self, kind: Kind) -> Mapping[str, Json]:
        """Return all that decides a vector of this kind to the last bit: weights, program, kind of machine."""
        ...


class KeptVectors:
    """The vectors of one encoder. Opened for each question, so that it lies where the call cache lies at the time.

    Where there is no folder of a call cache nothing is kept: it is made by runs, not by whoever asks an encoder.
    """

    def __init__(self, encoder: Reproducible) -> None:
        self._encoder = encoder
        self._told: set[str] = set()

    def of(self, kind: Kind, texts: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """Return the vectors that are kept, by text."""
        import numpy as np

        found: dict[str, NDArray[np.float32]] = {}

        def read(connection: sqlite3.Connection) -> None:
            for text, key in zip(texts, self._keys(kind, texts), strict=True):
                row = connection.execute("SELECT vector, checksum FROM vectors WHERE key = ?", (key,)).fetchone()
                if row and is_whole(key, *row):
                    found[text] = np.frombuffer(row[0], "<f4").astype(np.float32)
                elif row:
                    self._tell(f"{call_cache() / FILE}: a damaged vector is made anew; kgqa cache check tells of all")

        self._open(read)
        return found

    def keep(self, kind: Kind, texts: Sequence[str], rows: NDArray[np.float32]) -> None:
        """Vectors of texts, a row each: all of them, or nothing."""
        vectors = [row.astype("<f4").tobytes() for row in rows]
        keyed = zip(self._keys(kind, texts), vectors, strict=True)
        kept = [(key, vector, _checksum(key, vector)) for key, vector in keyed]

        def write(connection: sqlite3.Connection) -> None:
            connection.executemany("REPLACE INTO vectors (key, vector, checksum) VALUES (?, ?, ?)", kept)
            connection.execute("DELETE FROM vectors WHERE place <= (SELECT max(place) FROM vectors) - ?", (MOST,))

        self._open(write)

    def _keys(self, kind: Kind, texts: Sequence[str]) -> list[bytes]:
        made_by = json.dumps(self._encoder.storage_key(kind), sort_keys=True).encode() + b"\0"
        return [hashlib.sha256(made_by + text.encode("utf-8", "surrogatepass")).digest() for text in texts]

    def _open(self, act: Callable[[sqlite3.Connection], None]) -> None:
        """One transaction. Where SQLite or the disk refuses, a line says so once."""
        path = call_cache() / FILE
        if not path.parent.is_dir():
            return
        try:
            with closing(_connection(create_private(path))) as connection, connection:
                act(connection)
        except (sqlite3.Error, OSError) as error:
            self._tell(f"{path}: cannot be used ({error}), so texts are encoded anew; if it is damaged: {REMEDY}")

    def _tell(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            _LOG.warning("%s", line)


@dataclass(frozen=True, slots=True)
class CheckedVectors:
    """The result of a check. `structure`: SQLite's error, "" for a sound file."""

    path: Path
    rows: int
    bytes: int
    bad: int
    structure: str

    @property
    def whole(self) -> bool:
        return not self.bad and not self.structure

    def __str__(self) -> str:
        said = f"damaged: {self.structure}; {REMEDY}" if self.structure else f"{self.bad:,} damaged"
        return f"{self.path}: {self.rows:,} vectors of {self.bytes:,} bytes, {said}" + (": whole" if self.whole else "")


def check_vectors(folder: Path) -> CheckedVectors | None:
    """Return every row's checksum, and SQLite's own check; None where there is no such file."""
    path, rows, size, bad, structure = folder / FILE, 0, 0, 0, ""
    if not path.is_file():
        return None
    try:
        with closing(_connection(path)) as connection:
            (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            structure = "" if found == "ok" else " ".join(found.split())
            for key, vector, kept in connection.execute("SELECT key, vector, checksum FROM vectors"):
                good = is_whole(key, vector, kept)
                rows, size, bad = rows + 1, size + len(key or b"") + len(vector or b""), bad + (not good)
    except sqlite3.Error as error:
        structure = structure or str(error)
    return CheckedVectors(path, rows, size, bad, structure)


def drop_damaged(found: CheckedVectors) -> None:
    """The damaged vectors, or the whole file where it is damaged itself: they cost time alone.

    Raises:
        StorageError: the disk refuses, or another process writes.
    """
    with explain_storage_errors(found.path):
        if found.structure:
            found.path.unlink()
            return
        try:
            with closing(_connection(found.path)) as connection, connection:
                connection.create_function("is_whole", 3, is_whole)
                connection.execute("DELETE FROM vectors WHERE NOT is_whole(key, vector, checksum)")
        except sqlite3.Error as error:
            raise StorageError(f"{found.path}: {error}; {AGAIN}") from error


def is_whole(key: object, vector: object, kept: object) -> bool:
    """Return whether a row is what was written."""
    return isinstance(key, bytes) and isinstance(vector, bytes) and kept == _checksum(key, vector)


def _checksum(key: bytes, vector: bytes) -> int:
    return zlib.crc32(vector, zlib.crc32(key))


def _connection(path: Path) -> sqlite3.Connection:
    """Return the connection with SQLite's ordinary journal: it works on network disks too, and writers are few."""
    connection = sqlite3.connect(path, timeout=_PATIENCE)
    with ExitStack() as otherwise:
        otherwise.callback(connection.close)
        (form,) = connection.execute("PRAGMA user_version").fetchone()
        if form == 0:
            connection.executescript(f"BEGIN IMMEDIATE; {_TABLE}; PRAGMA user_version = {_FORM}; COMMIT")
        elif form != _FORM:
            raise sqlite3.DatabaseError(f"its form is {form}, and this kgqa has form {_FORM}")
        otherwise.pop_all()
    return connection
