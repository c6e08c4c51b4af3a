"""Count what texts contain in sparse matrices, and their files."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from kgqa.retrieval.search import Scores

T = TypeVar("T", bound=Hashable)
# of scipy.sparse, which takes long to import
Matrix = Any


def count_items(
    texts: Iterable[Iterable[T]], first_items: Iterable[T] = ()
) -> tuple[dict[T, int], Matrix]:
    """Return the column of each item, and how often each text has it, shape (texts, items).

    Columns are those of the `known` items, then of the others in the order in which they first occur.
    """
    from scipy.sparse import csr_matrix

    numbers = {item: number for number, item in enumerate(first_items)}
    columns, counted, ends = array("i"), array("i"), array("q", [0])
    for items in texts:
        counts = Counter(items)
        columns.extend(numbers.setdefault(item, len(numbers)) for item in counts)
        counted.extend(counts.values())
        ends.append(len(columns))
    cells = np.array(counted, np.float64), np.array(columns, np.int32), np.array(ends)
    matrix = csr_matrix(cells, shape=(len(ends) - 1, len(numbers)))
    # one order of summing, whatever the order in a text
    matrix.sort_indices()
    return numbers, matrix


def count_holders(counts: Matrix) -> Scores:
    """Return the number of texts that have each item."""
    return np.bincount(counts.indices, minlength=counts.shape[1]).astype(np.float64)


def idf(texts: int, holders: NDArray[Any]) -> Scores:
    """Return the inverse document frequency of items, from the number of texts that have each."""
    frequencies: Scores = np.log((1 + texts) / (1 + holders))
    return frequencies


def weigh_items(counts: Matrix, weights: Scores) -> None:
    """Multiply each item's column by its weight, and then scale each row to length 1."""
    counts.data *= weights[counts.indices]
    lengths = np.sqrt(np.asarray(counts.multiply(counts).sum(axis=1)).ravel())
    counts.data /= np.repeat(np.where(lengths > 0, lengths, 1), np.diff(counts.indptr))


def save_matrix(file: Path | BinaryIO, matrix: Any) -> None:
    from scipy.sparse import save_npz

    save_npz(file, matrix, compressed=False)


def load_matrix(file: Path | BinaryIO) -> Any:
    from scipy.sparse import load_npz

    return load_npz(file)


def save_words(file: Path, words: Iterable[str]) -> None:
    """Write one word per line. Its line is its column."""
    file.write_text(
        "".join(f"{word}\n" for word in words), encoding="utf-8", errors="surrogatepass"
    )


def load_words(file: Path) -> dict[str, int]:
    """Return the words with their columns."""
    lines = file.read_text(encoding="utf-8", errors="surrogatepass").split("\n")[:-1]
    return {word: number for number, word in enumerate(lines)}
