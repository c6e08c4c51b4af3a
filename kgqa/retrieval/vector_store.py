"""Vectors of texts on disk, shared by all indexes: kgqa encodes a text once per encoder.

<root>/<hash of the encoder's identity>.sqlite    one row per text: the hash of the text, and its vector
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kgqa.errors import DataError, StorageError
from kgqa.types import JsonObject
from kgqa.util.digests import digest
from kgqa.util.fs import AGAIN, ensure_dir, explain_storage_errors

Vectors = NDArray[np.float32]
TIMEOUT = 600.0  # seconds to wait for another process that writes
HASHES = 500  # looked up at once; SQLite allows 999 parameters in old versions
_ROOT: ContextVar[Path | None] = ContextVar("root of the stored vectors", default=None)


@contextmanager
def store_vectors(root: Path | None) -> Iterator[None]:
    """Set the folder in which `encode_once` reads and writes vectors. None: it encodes all texts."""
    token = _ROOT.set(root)
    try:
        yield
    finally:
        _ROOT.reset(token)


def encode_once(identity: JsonObject, texts: Sequence[str], encode: Callable[[Sequence[str]], Vectors]) -> Vectors:
    """Return the vectors of the texts, shape (len(texts), d). Only texts without a stored vector are encoded.

    Outside of `store_vectors` all texts are encoded.

    Args:
        identity: what decides a vector of this kind of text.
        encode: gets distinct texts in the order of `texts`.
    """
    root = _ROOT.get()
    return encode(texts) if root is None else VectorStore(root).encode(identity, texts, encode)


@dataclass(frozen=True)
class VectorStore:
    """The files of all encoders. Several processes can write at once."""

    root: Path

    def encode(self, identity: JsonObject, texts: Sequence[str], encode: Callable[[Sequence[str]], Vectors]) -> Vectors:
        """Return the vectors of the texts, as `encode_once`.

        Raises:
            DataError: the file is damaged.
            StorageError: the disk is full or does not allow writing.
        """
        file = self.root / f"{digest(dict(identity), 16, ensure_ascii=False)}.sqlite"
        with explain_storage_errors(file):
            ensure_dir(self.root)
        hashes = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16] for text in texts]
        with _explain_errors(file), closing(sqlite3.connect(file, timeout=TIMEOUT)) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS vectors (hash BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID")
            vectors = _read(connection, hashes)
        if missing := {key: text for key, text in zip(hashes, texts, strict=True) if key not in vectors}:
            rows = np.asarray(encode(list(missing.values())), dtype="<f4")
            vectors.update(zip(missing, rows, strict=True))
            added = [(key, vectors[key].tobytes()) for key in missing]
            with _explain_errors(file), closing(sqlite3.connect(file, timeout=TIMEOUT)) as connection, connection:
                connection.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", added)
        with _explain_errors(file):
            return np.stack([vectors[key] for key in hashes])


@contextmanager
def _explain_errors(file: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise StorageError(f"{file}: {error}. {AGAIN}") from error
    except (sqlite3.DatabaseError, ValueError) as error:
        raise DataError(f"{file}: damaged vectors ({error}). Delete the file and run again") from error


def _read(connection: sqlite3.Connection, hashes: Sequence[bytes]) -> dict[bytes, Vectors]:
    vectors: dict[bytes, Vectors] = {}
    for start in range(0, len(hashes), HASHES):
        some = hashes[start : start + HASHES]
        marks = ",".join("?" * len(some))
        rows = connection.execute(f"SELECT hash, vector FROM vectors WHERE hash IN ({marks})", some)  # noqa: S608 - marks only
        vectors.update((key, np.frombuffer(vector, dtype="<f4")) for key, vector in rows)
    return vectors
