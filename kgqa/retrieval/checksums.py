"""Check an index's files against their checksums: completely if they are small, otherwise a sample of blocks.

A flipped bit is otherwise another prediction that nobody sees, or a panic within a library.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kgqa.types import Json
from kgqa.util.fs import sha256

WHOLE = 256 << 20  # bytes of an index that are read on opening: 0.15 s where the CPU has SHA-256, 0.6 s where not
BLOCK = 1 << 20  # bytes of a larger index's files that have a digest of their own
DIGITS = 16  # hex digits of it
DRAWN = 16  # blocks that are read of each larger file, beside its first and its last


def describe_files(folder: Path, files: Iterable[Path]) -> dict[str, Json]:
    """Return size and hash of each file by its name in the folder, and block hashes if the files are large."""
    listed = list(files)
    large = sum(file.stat().st_size for file in listed) > WHOLE
    return {str(file.relative_to(folder)): _describe(file, blocks=large) for file in listed}


def _describe(file: Path, *, blocks: bool) -> dict[str, Json]:
    whole, digests = hashlib.sha256(), []
    with file.open("rb") as source:
        while block := source.read(BLOCK):
            whole.update(block)
            if blocks:
                digests.append(_digest(block))
    written: dict[str, Json] = {"bytes": file.stat().st_size, "sha256": whole.hexdigest()}
    return {**written, "blocks": "".join(digests)} if blocks else written


def find_changed(folder: Path, files: Mapping[str, Any], seed: int) -> str | None:
    """Return the first file that does not hold what `described` saw, as far as is read here; their sizes are right.

    seed: of the blocks that are drawn. An index of before blocks were kept is read as a whole or not at all.

    Raises:
        OSError: a file cannot be read.
    """
    if sum(written["bytes"] for written in files.values()) <= WHOLE:
        differ = (name for name, written in files.items() if sha256(folder / name) != written.get("sha256"))
    else:
        differ = (name for name, written in files.items() if not _sample_holds(folder / name, written, seed))
    return next(differ, None)


def _sample_holds(file: Path, written: Mapping[str, Any], seed: int) -> bool:
    digests = written.get("blocks", "")
    count = len(digests) // DIGITS
    drawn = random.Random(f"{seed} {file.name}").sample(range(count), min(DRAWN, count))  # noqa: S311 - a sample
    with file.open("rb") as source:
        for number in sorted({*drawn, *range(count)[:1], *range(count)[-1:]}):
            source.seek(number * BLOCK)
            if _digest(source.read(BLOCK)) != digests[number * DIGITS : (number + 1) * DIGITS]:
                return False
    return True


def _digest(block: bytes) -> str:
    return hashlib.sha256(block).hexdigest()[:DIGITS]
