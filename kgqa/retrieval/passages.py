"""A corpus on disk: one passage per line, read by its position in constant time. No passage stays in memory."""

from __future__ import annotations

import hashlib
import mmap
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

import numpy as np

from kgqa.errors import DataError
from kgqa.protocols import Progress
from kgqa.scoring.retrieval import normalize_title
from kgqa.types import Json, Passage
from kgqa.util.fs import explain_storage_errors
from kgqa.util.jsonio import decode_json, encode_json

LINES, OFFSETS, TITLES = "passages.jsonl", "offsets.npy", "titles.npy"


@dataclass(frozen=True)
class Corpus:
    """The manifest of stored passages."""

    # of the passages' ids in order
    hash: str
    count: int
    # identical passages that were left out
    duplicates: int
    # passages whose text, apart from its case, an earlier one has
    equal_texts: int
    without_text: int


def store(passages: Iterable[Passage], folder: Path, advance: Progress) -> Corpus:
    """Write passages in their order, identical ones once. Memory grows by about 240 bytes per passage.

    Raises:
        DataError: there is no passage, or two share an id and nothing else.
        StorageError: the disk is full or refuses.
    """
    # by id; hashes, so that memory stays small
    contents: dict[int, int] = {}
    texts: set[int] = set()
    duplicates = without_text = total = 0
    offsets, titles, hashed = array("Q"), array("Q"), hashlib.sha256()
    with explain_storage_errors(folder / LINES), (folder / LINES).open("wb") as lines:
        for passage in passages:
            number, content = hash(passage.id), hash((passage.title, passage.text))
            if contents.setdefault(number, content) != content:
                raise DataError(
                    f"two passages have the id {passage.id}, the second is {passage.title!r}. Use a "
                    "different id for each"
                )
            if len(contents) == len(offsets):
                duplicates += 1
                continue
            texts.add(hash(text_key(passage)))
            without_text += not passage.text.strip()
            offsets.append(total)
            titles.append(_title_number(passage.title))
            hashed.update(f"{passage.id}\n".encode())
            line: dict[str, Json] = {"id": passage.id, "title": passage.title, "text": passage.text}
            if passage.sentences:
                line["sentences"] = passage.sentences
            if passage.place:
                line["place"] = passage.place
            total += lines.write(encode_json(line) + b"\n")
            advance(1)
    count = len(offsets)
    if not count:
        raise DataError("the corpus has no passages. Name another file as dataset.corpus")
    offsets.append(total)
    numbers = np.array(titles)
    positions = np.argsort(numbers, kind="stable")
    with explain_storage_errors(folder):
        np.save(folder / OFFSETS, np.array(offsets))
        np.save(folder / TITLES, np.stack([numbers[positions], positions.astype(np.uint64)]))
    return Corpus(hashed.hexdigest(), count, duplicates, count - len(texts), without_text)


class StoredPassages(Sequence[Passage]):
    """Stored passages as a sequence. Opening a large corpus is as fast as a small one. Safe to use from threads."""

    def __init__(self, folder: Path) -> None:
        with explain_storage_errors(folder):
            with (folder / LINES).open("rb") as opened:
                self._lines = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
            self._offsets = np.load(folder / OFFSETS, mmap_mode="r")
            # numbers of titles, ascending, and their positions
            self._titles = np.load(folder / TITLES, mmap_mode="r")

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, position: int) -> Passage: ...
    @overload
    def __getitem__(self, position: slice) -> list[Passage]: ...
    def __getitem__(self, position: int | slice) -> Passage | list[Passage]:
        if isinstance(position, slice):
            return [self[position] for position in range(*position.indices(len(self)))]
        if not -len(self) <= position < len(self):
            raise IndexError(position)
        position %= len(self)
        value = decode_json(self._lines[self._offsets[position] : self._offsets[position + 1]])
        return Passage(**{**value, "sentences": tuple(value.get("sentences", ()))})

    def find_titled(self, title: str) -> list[int]:
        """Return positions of the passages with this title, ascending; ignores case, underscores and runs of blanks."""
        number = np.uint64(_title_number(title))
        start, end = (np.searchsorted(self._titles[0], number, side) for side in ("left", "right"))
        positions: list[int] = self._titles[1, start:end].tolist()
        return positions

    def close(self) -> None:
        self._lines.close()


def text_key(passage: Passage) -> str:
    """Return the text in lower case (IRCoT's rule), or the title of a passage without text."""
    return passage.text.lower() if passage.text.strip() else f"title {passage.title.lower()}"


def _title_number(title: str) -> int:
    """Return 64 bits that are the same in every process, unlike `hash`."""
    content = normalize_title(title).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")
