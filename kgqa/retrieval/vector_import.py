"""Import the vectors of an index that FAISS wrote, such as FlashRAG's published `e5_Flat.index` of wiki-18."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kgqa.errors import ConfigError, DataError
from kgqa.protocols import Progress
from kgqa.retrieval.dense import SHARD, VECTORS, Dense, import_faiss, save_progress
from kgqa.retrieval.vector_store import MOST_DIFFERENCE
from kgqa.types import Passage
from kgqa.util.fs import explain_storage_errors

# passages that the encoder must give the vector of the file
CHECKED = 100


@dataclass
class VectorImport:
    """Vectors of a file, one for each record of the corpus, in its order. read_records: yields these records.

    kgqa stores repeated passages once, so `passages` notes the records that it stores.
    """

    file: Path
    retriever: Dense
    read_records: Callable[[], Iterable[Passage]]
    _rows: array[int] = field(default_factory=lambda: array("Q"))
    _records: int = 0

    @classmethod
    def of(
        cls, file: Path, retriever: object, read_records: Callable[[], Iterable[Passage]]
    ) -> VectorImport:
        """Raise a ConfigError if the retriever has no vectors, or there is no such file."""
        if not isinstance(retriever, Dense):
            raise ConfigError(
                f"--import {file}: this retriever has no vectors. Choose the encoder of the file, e.g. "
                "retriever=e5_flashrag"
            )
        if not file.is_file():
            raise ConfigError(f"--import {file}: no such file. Name an index of FAISS")
        return cls(file, retriever, read_records)

    def passages(self) -> Iterator[Passage]:
        """Yield each passage once, at its first position."""
        # hashes need less memory than ids
        seen: set[int] = set()
        for number, passage in enumerate(self.read_records()):
            self._records = number + 1
            if hash(passage.id) not in seen:
                seen.add(hash(passage.id))
                self._rows.append(number)
                yield passage

    def write(self, passages: Sequence[Passage], folder: Path, advance: Progress) -> None:
        """Write the vectors of the stored passages as `Dense.build` would.

        Raises:
            DataError: they are vectors of another corpus or of another encoder.
        """
        index, rows = self._open(), np.array(self._rows)
        self._check(index, rows, passages)
        settings, storage = self.retriever.vector_settings(len(rows)), self.retriever.storage
        with explain_storage_errors(folder / VECTORS):
            vectors = np.lib.format.open_memmap(
                folder / VECTORS, "w+", np.dtype(storage), (len(rows), index.d)
            )
            for start in range(0, len(rows), SHARD):
                some = rows[start : start + SHARD]
                vectors[start : start + len(some)] = _read(index, some)
                advance(len(some))
            vectors.flush()
        save_progress(folder, settings, len(rows))

    def _open(self) -> Any:
        faiss = import_faiss()
        try:
            # pages of a flat index are read when they are needed
            return faiss.read_index(str(self.file), getattr(faiss, "IO_FLAG_MMAP_IFC", 0))
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1]
            raise DataError(
                f"{self.file}: FAISS cannot read this index ({reason}). Name a flat one"
            ) from error

    def _check(self, index: Any, rows: Any, passages: Sequence[Passage]) -> None:
        """Compare the vectors of some passages with those of the encoder."""
        if index.ntotal != self._records:
            raise DataError(
                f"{self.file}: {index.ntotal:,} vectors, but the corpus has {self._records:,} records. Name the "
                "corpus of this index: dataset.corpus=FILE"
            )
        chosen = np.unique(np.linspace(0, len(rows) - 1, CHECKED).astype(np.int64))
        texts = [self.retriever.text(passages[position]) for position in chosen]
        fresh = self.retriever.loaded_encoder.encode("passage", texts)
        try:
            stored = np.stack([index.reconstruct(int(row)) for row in rows[chosen]])
        except RuntimeError as error:
            raise DataError(
                f"{self.file}: an index of type {type(index).__name__} does not return its vectors. Import a flat one"
            ) from error
        if fresh.shape != stored.shape:
            raise DataError(
                f"{self.file}: vectors of {stored.shape[1]} numbers, but the encoder gives {fresh.shape[1]}. Choose "
                "the retriever with the encoder of this index"
            )
        differences = np.linalg.norm(fresh - stored, axis=1) / np.linalg.norm(stored, axis=1)
        if differences.max() > MOST_DIFFERENCE:
            worst = int(differences.argmax())
            raise DataError(
                f"{self.file}: {np.count_nonzero(differences > MOST_DIFFERENCE)} of {len(chosen)} passages have other "
                f"vectors, such as record {rows[chosen[worst]]:,} ({texts[worst][:60]!r}). Choose the retriever with "
                "the encoder, the prefix and the separator of this index"
            )


def _read(index: Any, rows: Any) -> Any:
    """Return the vectors of some ascending rows, which are close together."""
    first, last = int(rows[0]), int(rows[-1])
    return index.reconstruct_n(first, last - first + 1)[rows - first]
