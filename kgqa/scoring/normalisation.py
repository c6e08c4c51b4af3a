"""Normalize answers as the benchmarks' scorers do.

The steps are SQuAD's (Rajpurkar et al., EMNLP 2016), as used by HotpotQA, 2WikiMultiHopQA, MuSiQue and TRACE. Only
ASCII punctuation is removed, as in the official scorers.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from functools import lru_cache, wraps

_ASCII_PUNCTUATION = str.maketrans("", "", string.punctuation)
_TO_BLANKS = str.maketrans(dict.fromkeys(string.punctuation + "‘’´`", " "))
_CLOSED = {"True": "yes", "False": "no"}
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_DROP_SEPARATORS = re.compile("[ -]")
# characters. A cache of longer texts could fill the memory
_SHORT = 10_000


def _cache_texts(normalise: Callable[[str], str]) -> Callable[[str], str]:
    """Cache results, because a run scores the same strings under all profiles: of long texts only the last few."""
    short, long = lru_cache(maxsize=65_536)(normalise), lru_cache(maxsize=8)(normalise)

    @wraps(normalise)
    def look_up(text: str) -> str:
        return short(text) if len(text) <= _SHORT else long(text)

    return look_up


@_cache_texts
def normalise(text: str) -> str:
    """Return the text in lower case, without ASCII punctuation and English articles, with single spaces."""
    return _without_articles(_without_punctuation(text.lower()))


@_cache_texts
def normalise_for_drop(text: str) -> str:
    """Normalize each token, with numbers in one notation, as DROP's scorer does (Dua et al., NAACL 2019).

    "1,000" becomes "1000.0". Hyphens separate tokens: "-5" loses its sign, and "four-year" is two words.
    """
    tokens = (_normalise_drop_token(token) for token in _DROP_SEPARATORS.split(text.lower()))
    return " ".join(token for token in tokens if token)


@_cache_texts
def normalise_as_r1_searcher(text: str) -> str:
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


def _normalise_drop_token(token: str) -> str:
    bare = token if is_number(token) else _without_punctuation(token)
    return str(float(bare)) if is_number(bare) else _without_articles(bare)


def _without_punctuation(text: str) -> str:
    return text.translate(_ASCII_PUNCTUATION)


def _without_articles(text: str) -> str:
    return " ".join(_ARTICLES.sub(" ", text).split())
