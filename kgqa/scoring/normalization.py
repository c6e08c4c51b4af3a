"""Normalize answers as the benchmarks' scorers do.

The steps are SQuAD's (Rajpurkar et al., EMNLP 2016), as used by HotpotQA, 2WikiMultiHopQA, MuSiQue and TRACE. Only
ASCII punctuation is removed, as in the official scorers.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache, wraps
from typing import TypeVar

_ASCII_PUNCTUATION = str.maketrans("", "", string.punctuation)
_TO_BLANKS = str.maketrans(dict.fromkeys(string.punctuation + "‘’´`", " "))
_CLOSED = {"True": "yes", "False": "no"}
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_DROP_SEPARATORS = re.compile("[ -]")
# parts of a text that end with a word, because a list of the words of 50 MB takes 500 MB
_BLOCK = re.compile(r".{1,100000}\S*", re.DOTALL)
_DROP_BLOCK = re.compile(r".{1,100000}[^ -]*", re.DOTALL)
# characters. A cache of longer texts could fill the memory
_SHORT = 10_000
T = TypeVar("T")


def _cache_texts(function: Callable[[str], T]) -> Callable[[str], T]:
    """Cache results, because a run scores the same strings under all profiles: of long texts only the last two."""
    short, long = lru_cache(maxsize=65_536)(function), lru_cache(maxsize=2)(function)

    @wraps(function)
    def look_up(text: str) -> T:
        return short(text) if len(text) <= _SHORT else long(text)

    return look_up


def split_words(text: str) -> Iterator[list[str]]:
    """Yield the words of a text in lists, which together are `text.split()`."""
    return (block[0].split() for block in _BLOCK.finditer(text))


@_cache_texts
def count_words(text: str) -> Counter[str]:
    """Return how often a text has each word. The result is shared, so do not change it."""
    counts = Counter[str]()
    for words in split_words(text):
        counts.update(words)
    return counts


@_cache_texts
def normalize(text: str) -> str:
    """Return the text in lower case, without ASCII punctuation and English articles, with single spaces."""
    return _without_articles(_without_punctuation(text.lower()))


@_cache_texts
def normalize_for_drop(text: str) -> str:
    """Normalize each token, with numbers in one notation, as DROP's scorer does (Dua et al., NAACL 2019).

    "1,000" becomes "1000.0". Hyphens separate tokens: "-5" loses its sign, and "four-year" is two words.
    """
    blocks = (_DROP_SEPARATORS.split(block[0]) for block in _DROP_BLOCK.finditer(text.lower()))
    parts = (" ".join(filter(None, map(_normalize_drop_token, tokens))) for tokens in blocks)
    return " ".join(filter(None, parts))


@_cache_texts
def normalize_as_r1_searcher(text: str) -> str:
    """Normalize with blanks in place of punctuation, and yes and no in place of True and False (Song et al., 2025)."""
    return _without_articles(
        _CLOSED.get(text, text).replace("_", " ").lower().translate(_TO_BLANKS)
    )


@_cache_texts
def repair_text(text: str) -> str:
    """Return the text without wrong decodings, ligatures and typographic quotes, as ftfy repairs it."""
    import ftfy  # slow to import

    return str(ftfy.fix_text(text))


def is_number(token: str) -> bool:
    """Return whether Python reads the token as a float, DROP's definition: "inf", "nan" and "1e5" are numbers."""
    try:
        float(token)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=65_536)
def _normalize_drop_token(token: str) -> str:
    bare = token if is_number(token) else _without_punctuation(token)
    return str(float(bare)) if is_number(bare) else _without_articles(bare)


def _without_punctuation(text: str) -> str:
    return text.translate(_ASCII_PUNCTUATION)


def _without_articles(text: str) -> str:
    parts = map(" ".join, split_words(_ARTICLES.sub(" ", text)))
    return " ".join(filter(None, parts))
