"""The vectors of a corpus on disk: shards of rows, written one after the other, mapped when they are read.

A shard's name holds the hash of what it was made from (encoder and texts), so a shard that is there is right: an
interrupted build goes on after the last finished one, and an index that differs in its search alone takes them over.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kgqa.errors import DataError
from kgqa.types import Json
from kgqa.util.fs import replace_atomically, sha256
from kgqa.util.jsonio import decode_json

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BLOCK = 256  # texts encoded between two signs of progress
PIECE = 8_192  # rows searched at once, whatever the size of a shard


@dataclass(frozen=True)
class Shards:
    """The format of stored vectors: rows per file, type, and the settings that decide them."""

    rows: int
    storage: Literal["float32", "float16"]
    made_by: Mapping[str, Json]

    def name(self, number: int, texts: Sequence[str]) -> str:
        hashed = hashlib.sha256(json.dumps([self.storage, self.made_by], sort_keys=True).encode())
        for text in texts:
            hashed.update(text.encode("utf-8", "surrogatepass") + b"\0")
        return f"vectors-{number:05}-{hashed.hexdigest()[:16]}.npy"

    def write(
        self,
        texts: Sequence[str],
        folder: Path,
        encode: Callable[[Sequence[str]], NDArray[np.float32]],
        advance: Callable[[int], None],
    ) -> None:
        """Vectors of the texts, in order. Those that lie here or in an index beside this one are not made again."""
        kept = set()
        for number, start in enumerate(range(0, len(texts), self.rows)):
            own = texts[start : start + self.rows]
            name = self.name(number, own)
            kept.add(name)
            if (folder / name).is_file() or _take_over(folder / name):
                advance(len(own))
                continue
            _save(_encode(own, encode, advance).astype(self.storage), folder / name)
        for stale in {file.name for file in folder.glob("vectors-*")} - kept:
            (folder / stale).unlink()


class Vectors:
    """Stored vectors. Only the headers are read until rows are used.

    Raises:
        DataError: the files do not hold `count` vectors of one dimension.
    """

    def __init__(self, folder: Path, count: int) -> None:
        import numpy as np

        self._files = sorted(folder.glob("vectors-*.npy"))
        try:
            self._shards = [np.load(file, mmap_mode="r") for file in self._files]
        except (OSError, ValueError) as error:
            raise DataError(f"{folder}: its vectors cannot be read ({error}); delete the index and build it") from error
        shapes = {shard.shape[1:] for shard in self._shards}
        if sum(len(shard) for shard in self._shards) != count or len(shapes) != 1:
            held = " + ".join(str(shard.shape) for shard in self._shards) or "none"
            raise DataError(f"{folder}: vectors {held} for {count} passages; delete the index and build it")
        self.folder = folder

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def dimension(self) -> int:
        return int(self._shards[0].shape[1])

    def blocks(self) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Yield all rows in pieces, each with its first place."""
        import numpy as np

        for first, shard in zip(self._starts[:-1], self._shards, strict=True):
            for start in range(0, len(shard), PIECE):
                yield int(first) + start, np.asarray(shard[start : start + PIECE], dtype=np.float32)

    def rows(self, places: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the vectors of some places, in the order given, shape (len(places), d)."""
        import numpy as np

        rows = np.empty((len(places), self.dimension), np.float32)
        shards = np.searchsorted(self._starts, places, side="right") - 1
        for shard in np.unique(shards):
            mine = shards == shard
            rows[mine] = self._shards[shard][places[mine] - self._starts[shard]]
        return rows

    def close(self) -> None:
        self._shards.clear()

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        import numpy as np

        return np.cumsum([0, *(len(shard) for shard in self._shards)], dtype=np.int64)


def _encode(
    texts: Sequence[str],
    encode: Callable[[Sequence[str]], NDArray[np.float32]],
    advance: Callable[[int], None],
) -> NDArray[np.float32]:
    """Return a row for each text; shorter texts are encoded first, so that a batch pads little."""
    import numpy as np

    order = sorted(range(len(texts)), key=lambda place: (len(texts[place]), place))
    rows: Any = None
    for start in range(0, len(order), BLOCK):
        places = order[start : start + BLOCK]
        block = encode([texts[place] for place in places])
        if not np.isfinite(block).all():
            raise DataError("the encoder gives vectors that are not finite; set retriever.encoder.dtype=float32")
        rows = np.empty((len(texts), block.shape[1]), np.float32) if rows is None else rows
        rows[places] = block
        advance(len(places))
    whole: NDArray[np.float32] = rows
    return whole


def _save(rows: NDArray[Any], file: Path) -> None:
    """Under its name once it is whole, so that a name stands for finished work."""
    import numpy as np

    with replace_atomically(file) as fresh, fresh.open("wb") as opened:
        np.save(opened, rows)
        opened.flush()
        os.fsync(opened.fileno())


def _take_over(file: Path) -> bool:
    """Return whether an index of this dataset has the shard; it is then linked, or copied where links do not work.

    Indexes lie in DATASET/RETRIEVER/HASH/finder; a retriever that is part of another has a folder of its own in there.
    """
    from kgqa.retrieval.index import FINDER

    finder = next((folder for folder in file.resolve().parents if folder.name == FINDER), None)
    if finder is None or len(finder.parents) < 3:
        return False
    twins = finder.parents[2].glob(f"*/*/{FINDER}/**/{file.name}")
    twin = next((twin for twin in twins if _as_written(twin)), None)
    if twin is None:
        return False
    with replace_atomically(file) as fresh:
        try:
            os.link(twin, fresh)
        except OSError:
            shutil.copyfile(twin, fresh)
    return True


def _as_written(shard: Path) -> bool:
    """Return whether the shard of another index is what its manifest says; an index that is not finished has none."""
    from kgqa.retrieval.index import FINDER, MANIFEST

    index = next(folder for folder in shard.parents if folder.name == FINDER).parent
    try:
        written = decode_json((index / MANIFEST).read_bytes())["files"][str(shard.relative_to(index))]["sha256"]
    except FileNotFoundError:
        return True
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return bool(sha256(shard) == written)
