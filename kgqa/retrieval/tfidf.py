"""TF-IDF cosine over sparse vectors on disk: the lexical baseline of KGP (Wang et al., AAAI 2024)."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from kgqa.errors import ConfigError
from kgqa.protocols import Finder, Query
from kgqa.retrieval.lexical import words
from kgqa.retrieval.topk import best_places
from kgqa.types import Json, Passage
from kgqa.util.fs import explain_storage_errors

if TYPE_CHECKING:
    from numpy.typing import NDArray

WORDS = "words.txt"  # one a line; its number is the line's
# Of word w: idf[w]; starts[w]:starts[w + 1] are the positions of its passages in `places` and `weights`.
ARRAYS = ("idf", "starts", "places", "weights")


@dataclass(frozen=True)
class Tfidf:
    """Cosine of the query and each passage, its `fields` as one, with the words and weights of `lexical.Lexical`.

    Frequencies are the corpus' own. A passage without a word of the query is not found. A passage without a text is
    its title, whatever the fields.
    """

    fields: tuple[Literal["title", "text"], ...]

    pools: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.fields:
            raise ConfigError("retriever.fields=[]: name title, text or both")

    def identity(self) -> Mapping[str, Json]:
        return {"retriever": "tfidf", "version": 2, "fields": sorted(set(self.fields))}

    def build(self, passages: Sequence[Passage], folder: Path, advance: Callable[[int], None]) -> None:
        """Count in memory, about 1 kB a passage, weigh and write. An interrupted build starts afresh."""
        import numpy as np

        numbers, counts = _count_terms(map(self.searched, passages), advance)  # counts: (passages, words), sparse
        held = np.bincount(counts.indices, minlength=len(numbers))  # passages that have the word
        idf = np.log((1 + len(passages)) / (1 + held)) + 1
        weights = counts.data * idf[counts.indices]
        rows = np.repeat(np.arange(len(passages)), np.diff(counts.indptr))
        lengths = np.sqrt(np.bincount(rows, weights=weights**2, minlength=len(passages)))
        counts.data = (weights / lengths[rows]).astype(np.float32)
        by_word = counts.tocsc()
        arrays = (idf, by_word.indptr.astype(np.int64), by_word.indices.astype(np.int32), by_word.data)
        with explain_storage_errors(folder):
            (folder / WORDS).write_text("".join(f"{word}\n" for word in numbers), encoding="utf-8")
            for name, values in zip(ARRAYS, arrays, strict=True):
                np.save(folder / f"{name}.npy", values)

    def searched(self, passage: Passage) -> str:
        if self.fields == ("text",):
            return passage.wording
        return " ".join(getattr(passage, field) for field in self.fields)

    def open(self, passages: Sequence[Passage], folder: Path) -> Finder:
        return _Finder(len(passages), folder)


class _Finder:
    """Reads the postings of a query's words only; the files are mapped, not loaded."""

    def __init__(self, count: int, folder: Path) -> None:
        self._count, self._folder = count, folder

    @cached_property
    def _numbers(self) -> dict[str, int]:
        lines = (self._folder / WORDS).read_text(encoding="utf-8").split("\n")
        return {word: number for number, word in enumerate(lines[:-1])}

    @cached_property
    def _arrays(self) -> dict[str, NDArray[Any]]:
        import numpy as np

        return {name: np.load(self._folder / f"{name}.npy", mmap_mode="r") for name in ARRAYS}

    def find(self, queries: Sequence[Query]) -> Sequence[Sequence[int]]:
        return [self._find(query) for query in queries]

    def close(self) -> None:
        self.__dict__.pop("_arrays", None)

    def _find(self, query: Query) -> list[int]:
        """Return the query's own length divides every score alike, so it is left out."""
        import numpy as np

        scores, of = np.zeros(self._count), self._arrays
        counted = Counter(self._numbers[word] for word in words(query.text) if word in self._numbers)
        for word, count in sorted(counted.items()):  # one order of summing, whatever the query's order
            has = slice(of["starts"][word], of["starts"][word + 1])
            scores[of["places"][has]] += count * of["idf"][word] * of["weights"][has]
        places = np.flatnonzero(scores) if query.among is None else np.array(query.among, dtype=np.int64)
        places = places[scores[places] > 0]
        return best_places(scores[places], query.k, places)


def _count_terms(texts: Iterable[str], advance: Callable[[int], None]) -> tuple[dict[str, int], Any]:
    """Return the words' numbers in the order they first occur, and how often each text has each."""
    import numpy as np
    from scipy.sparse import csr_matrix

    numbers: dict[str, int] = {}
    columns, counts, starts = array("i"), array("i"), array("q", [0])
    for text in texts:
        counted = Counter(words(text))
        columns.extend(numbers.setdefault(word, len(numbers)) for word in counted)
        counts.extend(counted.values())
        starts.append(len(columns))
        advance(1)
    parts = (np.array(counts, dtype=np.float64), np.array(columns), np.array(starts))
    return numbers, csr_matrix(parts, shape=(len(starts) - 1, len(numbers)))
