"""Vectors of texts on disk, shared by all indexes: kgqa encodes a text once per encoder.

<root>/<hash of the encoder's identity>.sqlite    one row per text: the hash of the text, its vector and a checksum

A row with a wrong checksum is encoded again. If a server computes the vectors, the file also has the first text
(`probe`): the server must give it the stored vector before other vectors are added.
"""

from __future__ import annotations

import hashlib
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kgqa.errors import DataError, StorageError
from kgqa.types import JsonObject
from kgqa.util.digests import digest
from kgqa.util.fs import AGAIN, ensure_dir, explain_storage_errors

Vectors = NDArray[np.float32]
# of two vectors of one text, as a share of their length: half precision changes 0.003
MOST_DIFFERENCE = 0.1
# seconds to wait for another process that writes
TIMEOUT = 600.0
# looked up at once; SQLite allows 999 parameters in old versions
HASHES = 500
_ROOT: ContextVar[Path | None] = ContextVar("root of the stored vectors", default=None)


@contextmanager
def store_vectors(root: Path | None) -> Iterator[None]:
    """Set the folder in which `encode_once` reads and writes vectors. None: it encodes all texts."""
    token = _ROOT.set(root)
    try:
        yield
    finally:
        _ROOT.reset(token)


def encode_once(
    identity: JsonObject,
    texts: Sequence[str],
    encode: Callable[[Sequence[str]], Vectors],
    *,
    is_checked: bool = False,
) -> Vectors:
    """Return the vectors of the texts, shape (len(texts), d). Only texts without a stored vector are encoded.

    Outside of `store_vectors` all texts are encoded.

    Args:
        identity: what decides a vector of this kind of text.
        encode: gets distinct texts in the order of `texts`.
        is_checked: whether other weights can answer under this identity.
    """
    root = _ROOT.get()
    return (
        encode(texts)
        if root is None
        else VectorStore(root).encode(identity, texts, encode, is_checked=is_checked)
    )


@dataclass(frozen=True)
class VectorStore:
    """The files of all encoders. Several processes can write at once."""

    root: Path

    def encode(
        self,
        identity: JsonObject,
        texts: Sequence[str],
        encode: Callable[[Sequence[str]], Vectors],
        *,
        is_checked: bool = False,
    ) -> Vectors:
        """Return the vectors of the texts, as `encode_once`.

        Raises:
            DataError: the file is damaged, or a server has other weights than before.
            StorageError: the disk is full or does not allow writing.
        """
        file = self.root / f"{digest(dict(identity), 16, ensure_ascii=False)}.sqlite"
        with explain_storage_errors(file):
            ensure_dir(self.root)
        hashes = [
            hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16] for text in texts
        ]
        with _open(file) as connection:
            vectors = _read(connection, hashes)
            probes = _read_probe(connection) if is_checked else {}
        if missing := {
            key: text for key, text in zip(hashes, texts, strict=True) if key not in vectors
        }:
            rows = np.asarray(encode([*probes, *missing.values()]), dtype="<f4")
            for fresh, stored in zip(rows, probes.values(), strict=False):
                check_vector(fresh, stored, file)
            vectors.update(zip(missing, rows[len(probes) :], strict=True))
            added = [(key, data := vectors[key].tobytes(), _checksum(key, data)) for key in missing]
            probe = next(iter(missing.values())).encode("utf-8", "surrogatepass")
            with _open(file) as connection, connection:
                connection.executemany("REPLACE INTO texts VALUES (?, ?, ?)", added)
                if is_checked and not probes:
                    connection.execute("INSERT INTO probe VALUES (?, ?)", (probe, added[0][1]))
        with _explain_errors(file):
            return np.stack([vectors[key] for key in hashes])


@contextmanager
def _open(file: Path) -> Iterator[sqlite3.Connection]:
    """Open a file, with its tables."""
    with _explain_errors(file), closing(sqlite3.connect(file, timeout=TIMEOUT)) as connection:
        columns = "hash BLOB PRIMARY KEY, vector BLOB, checksum INTEGER"
        connection.execute(f"CREATE TABLE IF NOT EXISTS texts ({columns}) WITHOUT ROWID")
        connection.execute("CREATE TABLE IF NOT EXISTS probe (text BLOB, vector BLOB)")
        yield connection


@contextmanager
def _explain_errors(file: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise StorageError(f"{file}: {error}. {AGAIN}") from error
    except (sqlite3.DatabaseError, ValueError) as error:
        raise DataError(
            f"{file}: damaged vectors ({error}). Delete the file and run again"
        ) from error


def check_vector(fresh: Vectors, stored: NDArray[Any], place: Path) -> None:
    """Raise DataError if an encoder gives a text another vector than a file has.

    A query's vector is compared with those in the file, so both must be from one model.
    """
    expected = stored.astype(np.float32)
    if fresh.shape == expected.shape and np.linalg.norm(
        fresh - expected
    ) <= MOST_DIFFERENCE * np.linalg.norm(expected):
        return
    raise DataError(
        f"{place}: the server gives a stored text another vector than before, so it has other weights under the same "
        "name. Serve the earlier model, or name the new one: retriever.encoder.deployment=NAME"
    )


def _checksum(key: bytes, vector: bytes) -> int:
    return zlib.crc32(vector, zlib.crc32(key))


def _read(connection: sqlite3.Connection, hashes: Sequence[bytes]) -> dict[bytes, Vectors]:
    """Return the undamaged vectors of these texts: a checksum can be forged, and NaN has no rank."""
    vectors: dict[bytes, Vectors] = {}
    for start in range(0, len(hashes), HASHES):
        some = hashes[start : start + HASHES]
        marks = ",".join("?" * len(some))
        rows = connection.execute(f"SELECT * FROM texts WHERE hash IN ({marks})", some)  # noqa: S608 - marks only
        for key, vector, checksum in rows:
            if isinstance(vector, bytes) and checksum == _checksum(key, vector):
                row = np.frombuffer(vector, dtype="<f4")
                if np.isfinite(row).all():
                    vectors[key] = row
    return vectors


def _read_probe(connection: sqlite3.Connection) -> dict[str, Vectors]:
    """Return the first text of the file and its vector, or {}."""
    rows = connection.execute("SELECT text, vector FROM probe LIMIT 1")
    return {
        text.decode("utf-8", "surrogatepass"): np.frombuffer(vector, dtype="<f4")
        for text, vector in rows
        if isinstance(text, bytes) and isinstance(vector, bytes)
    }
