"""Passages that share a keyword of their documents (KGP §3, TF-IDF KG construction)."""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from kgqa.retrieval import sparse
from kgqa.retrieval.graphs.links import Links, link_passages
from kgqa.retrieval.lexical import words
from kgqa.types import Passage
from kgqa.util.settings import Setting
from kgqa.util.validators import Natural, Validator

Phrase = tuple[str, ...]


def words_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


# "meaningless words such as supporting verbs and articles" (§3) start and end no keyword
STOP_WORDS = words_of(
    "a an the this that these those it its he him his she her hers they them their theirs we us our you your i me "
    "my who whom whose which what when where why how be am is are was were been being do does did done has had "
    "have having can could may might must shall should will would not no nor and or but if so than then as at by "
    "for from in into of off on onto out over to up with without about above after again against all also although "
    "among any because before below between both down during each few more most other own same some such through "
    "too under until very while there here s t"
)
Longest = Annotated[int, Validator("must be between 1 and 8", lambda words: 1 <= words <= 8)]


@dataclass(frozen=True)
class Keywords:
    """The `keywords` of each document with the highest TF-IDF, and its title; passages that hold one are linked.

    A keyword is 1 to `longest` words. Its weight in a document is its count there times ln((1 + n) / (1 + df)) + 1 over
    the n documents; of equal weights the one that comes first in the document is taken, and of those that start
    together the longer. Any document's keyword links any passages that hold it. A title counts as one keyword whatever
    its length and its stop words, without a bracket at its end. A passage holds what is in its text, not its title.
    """

    keywords: Annotated[
        Natural,
        Setting(
            "Keywords per document. Varied in Figs. 5 and 9; docs/KGP.md explains the choice.",
            ours="our choice",
        ),
    ] = 5
    longest: Annotated[
        Longest, Setting("Maximum number of words in a keyword.", code="released code")
    ] = 4

    # raise it when equal settings give other results
    version: ClassVar[int] = 1

    def links(self, passages: Sequence[Passage]) -> Links:
        """Link the passages. Only hashes of all phrases are in memory at once: 50,000 passages need about 1 GB."""
        texts = [[sys.intern(word) for word in words(passage.text)] for passage in passages]
        documents = defaultdict[str, list[list[str]]](list)  # by title
        for passage, text in zip(passages, texts, strict=True):
            documents[passage.title].append(text)
        hashes = (
            hash(phrase)
            for document in documents.values()
            for phrase in set(self._phrases(document))
        )
        phrases, frequency = np.unique(np.fromiter(hashes, np.int64), return_counts=True)
        titles = {title for name in documents if (title := tuple(words(bare_title(name))))}
        for document in documents.values():
            # in the order they first occur
            counts = Counter(self._phrases(document))
            frequencies = frequency[np.searchsorted(phrases, [hash(phrase) for phrase in counts])]
            weights = np.array([*counts.values()]) * (sparse.idf(len(documents), frequencies) + 1)
            best = np.argsort(-weights.round(9), kind="stable")[: self.keywords]
            titles.update(map([*counts].__getitem__, best))
        return link_passages(
            [[phrase for _, phrase in frequencies] for frequencies in find_phrases(texts, titles)]
        )

    def _phrases(self, document: Sequence[Sequence[str]]) -> Iterator[Phrase]:
        """Yield phrases that neither start nor end with a stop word, by their start, the longest first."""
        for text in document:
            for start, word in enumerate(text):
                if word not in STOP_WORDS:
                    for end in range(min(start + self.longest, len(text)), start, -1):
                        if text[end - 1] not in STOP_WORDS:
                            yield tuple(text[start:end])


def find_phrases(
    texts: Sequence[Sequence[str]], phrases: Set[Phrase]
) -> list[list[tuple[int, Phrase]]]:
    """Return the phrases that each text holds with their starts: by start, the longest first."""
    # of the phrases that start with a word
    lengths = defaultdict[str, set[int]](set)
    for phrase in phrases:
        lengths[phrase[0]].add(len(phrase))
    return [
        [
            (start, phrase)
            for start, word in enumerate(text)
            for length in sorted(lengths.get(word, ()), reverse=True)
            if start + length <= len(text)
            and (phrase := tuple(text[start : start + length])) in phrases
        ]
        for text in texts
    ]


def bare_title(title: str) -> str:
    """Return a title without the part that disambiguates it: "Mulan" for "Mulan (1998 film)"."""
    return re.sub(r"\s*\([^()]*\)\s*$", "", title) or title
