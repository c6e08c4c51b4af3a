"""Passages that share a keyword of their documents (KGP §3, TF-IDF KG construction)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated

from kgqa.retrieval.graphs.links import Links, document_of, of_pairs
from kgqa.retrieval.lexical import words
from kgqa.types import Json, Passage
from kgqa.util.validators import Natural, Validator

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BASE = 0x9E3779B97F4A7C15  # odd, so that no word of a phrase is lost in 64 bits


def words_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


# "meaningless words such as supporting verbs and articles" (§3) begin and end no keyword
STOP_WORDS = words_of(
    "a an the this that these those it its he him his she her hers they them their theirs we us our you your i me my "
    "who whom whose which what when where why how be am is are was were been being do does did done has had have "
    "having can could may might must shall should will would not no nor and or but if so than then as at by for from "
    "in into of off on onto out over to up with without about above after again against all also although among any "
    "because before below between both down during each few more most other own same some such through too under "
    "until very while there here s t"
)
Longest = Annotated[int, Validator("must be between 1 and 8", lambda words: 1 <= words <= 8)]


@dataclass(frozen=True)
class Keywords:
    """The `keywords` of each document with the highest TF-IDF, and its title; passages that hold one are linked.

    A keyword is 1 to `longest` words. Its weight in a document is its count there times ln((1 + n) / (1 + df)) + 1 over
    the n documents; of equal weights the one that comes first in the document is taken, and of those that begin
    together the longer. Any document's keyword links any passages that hold it. A title counts as one keyword whatever
    its length and its stop words, without a bracket at its end. A passage holds what stands in its text, not its title.
    """

    keywords: Natural
    longest: Longest

    def identity(self) -> Mapping[str, Json]:
        return {"graph": "keywords", "version": 1, "keywords": self.keywords, "longest": self.longest}

    def links(self, passages: Sequence[Passage]) -> Links:
        return self.join(passages, [self.read(passage) for passage in passages])

    def read(self, passage: Passage) -> NDArray[np.uint64]:
        """Return the part of the work that a passage alone decides: its words as numbers."""
        return _numbers(words(passage.text))

    def join(self, passages: Sequence[Passage], parts: Sequence[NDArray[np.uint64]]) -> Links:
        """Return the rest, in n log n of the words of all passages."""
        import numpy as np

        if not passages:
            return of_pairs(np.zeros(0, np.int64), np.zeros(0, np.int64), 0)
        documents = list(dict.fromkeys(map(document_of, passages)))
        titles = [tuple(words(bare_title(title))) for title in documents]
        held = _Windows(parts, sorted({*range(1, self.longest + 1), *map(len, titles)} - {0}))
        number = {title: place for place, title in enumerate(documents)}
        of = np.array([number[document_of(passage)] for passage in passages])
        named = {_phrase(_numbers(title)) for title in titles if title}
        chosen = np.union1d(self._best(held, of, len(documents)), np.array(sorted(named), np.uint64))
        hits = np.isin(held.phrases, chosen)
        return of_pairs(held.passages[hits], np.searchsorted(chosen, held.phrases[hits]), len(passages))

    def _best(self, held: _Windows, document_of: NDArray[np.int64], documents: int) -> NDArray[np.uint64]:
        """Return the phrases that are a keyword of some document, sorted."""
        import numpy as np

        usable = np.flatnonzero(held.meaningful & (held.lengths <= self.longest))
        phrases, number = np.unique(held.phrases[usable], return_inverse=True)
        document = document_of[held.passages[usable]]
        order = np.lexsort((-held.lengths[usable], held.starts[usable]))
        pairs, first, counts = np.unique(
            (document * len(phrases) + number)[order], return_index=True, return_counts=True
        )
        of_phrase, of_document = pairs % max(len(phrases), 1), pairs // max(len(phrases), 1)
        frequency = np.bincount(of_phrase, minlength=len(phrases))
        weights = counts * (np.log((1 + documents) / (1 + frequency)) + 1)[of_phrase]
        ranked = np.lexsort((first, -np.round(weights, 9), of_document))
        begins = np.searchsorted(of_document[ranked], np.arange(documents))
        rank = np.arange(len(ranked)) - begins[of_document[ranked]]
        best: NDArray[np.uint64] = phrases[np.unique(of_phrase[ranked[rank < self.keywords]])]
        return best


class _Windows:
    """All runs of words of the wanted lengths within a passage, as parallel columns."""

    def __init__(self, parts: Sequence[NDArray[np.uint64]], lengths: Sequence[int]) -> None:
        import numpy as np

        tokens = np.concatenate(parts)
        ends = np.repeat(np.cumsum([len(part) for part in parts]), [len(part) for part in parts])
        passages = np.repeat(np.arange(len(parts), dtype=np.int32), [len(part) for part in parts])
        empty = np.isin(tokens, _numbers(sorted(STOP_WORDS)))
        columns = []
        rolling = np.zeros(len(tokens), np.uint64)
        for length in range(1, max(lengths, default=0) + 1):
            # a phrase's number is that of its words as digits of base BASE, modulo 2^64
            rolling = rolling[: max(len(tokens) - length + 1, 0)] * np.uint64(BASE) + tokens[length - 1 :]
            if length in lengths:
                starts = np.flatnonzero(np.arange(len(rolling)) + length <= ends[: len(rolling)]).astype(np.int32)
                meaningful = ~empty[starts] & ~empty[starts + length - 1]
                columns.append(
                    (rolling[starts], starts, passages[starts], np.full(len(starts), length, np.int32), meaningful)
                )
        phrases, starts, of, long, meaningful = (
            (np.concatenate(column) for column in zip(*columns, strict=True))
            if columns
            else (np.zeros(0, kind) for kind in (np.uint64, np.int64, np.int64, np.int64, bool))
        )
        self.phrases, self.starts, self.passages, self.lengths, self.meaningful = phrases, starts, of, long, meaningful


def _numbers(keywords: Sequence[str]) -> NDArray[np.uint64]:
    import numpy as np

    return np.array([_number(word) for word in keywords], np.uint64)


@lru_cache(maxsize=1 << 18)
def _number(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _phrase(numbers: NDArray[np.uint64]) -> int:
    value = 0
    for number in numbers:
        value = (value * BASE + int(number)) % (1 << 64)
    return value


def bare_title(title: str) -> str:
    """Return a title without the part that disambiguates it: "Mulan" for "Mulan (1998 film)"."""
    return re.sub(r"\s*\([^()]*\)\s*$", "", title) or title
