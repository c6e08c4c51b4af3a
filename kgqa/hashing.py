"""Hashes of files. Data files are hashed anew each time; weights are remembered, since they are large and stay."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

BLOCK = 1 << 22


def sha256(file: Path) -> str:
    hashed = hashlib.sha256()
    with file.open("rb") as source:
        while block := source.read(BLOCK):
            hashed.update(block)
    return hashed.hexdigest()


def of_ids(ids: Iterable[str]) -> str:
    """16 hex digits of the ids in their order: what names a collection of passages."""
    return hashlib.sha256("\n".join(ids).encode()).hexdigest()[:16]


def remembered_sha256(file: Path) -> str:
    """The same, computed once per process while path, size and modification time stay as they are."""
    stat = file.stat()
    return _sha256_at(file, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=256)
def _sha256_at(file: Path, size: int, modified: int) -> str:
    del size, modified  # part of the key only
    return sha256(file)
