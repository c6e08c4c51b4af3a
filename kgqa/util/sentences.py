"""Split text into sentences: chains of thought, and passages without sentences of the dataset.

Full stops of abbreviations and initials do not end a sentence. If a stop can be both ("… in the U.S. He …"), the next
word decides.
"""

from __future__ import annotations

import re

_STOP = re.compile(r"""(?<![.!?…])[.!?…]+["'”’)\]]*(?=\s)|[。！？]+["'”’」』）]*""")
_WORD = re.compile(r"\S+")
_OPENING = "\"'“‘(["


def _words(words: str) -> frozenset[str]:
    return frozenset(words.split())


_TITLES = _words(
    "mr mrs ms dr prof st ste mt mts rev hon gov gen adm col maj capt cpl lt sgt sen rep pres fr vs cf op"
)
_BEFORE_NUMBERS = _words(
    "no nos vol fig p pp c ca jan feb mar apr jun jul aug sep sept oct nov dec"
)
_MAYBE_LAST = _words("jr sr inc ltd co corp etc bros ft")
_OPENERS = _words(
    "a an the this that these those he she it they his her its their we i one two both each no yes"
)
_OPENERS |= _words(
    "and as at but by for from hence if in of on since so then there thus to when while with"
)


def sentences(text: str) -> list[str]:
    """Return the stripped, non-empty sentences in order."""
    parts, start = [], 0
    for stop in _STOP.finditer(text):
        if _ends_sentence(text, stop):
            parts.append(text[start : stop.end()].strip())
            start = stop.end()
    parts.append(text[start:].strip())
    return [sentence for sentence in parts if sentence]


def _ends_sentence(text: str, stop: re.Match[str]) -> bool:
    following = _WORD.search(text, stop.end())
    if following is None:
        return True
    next_word = following[0].lstrip(_OPENING)
    if next_word[:1].islower():
        return False
    if stop[0] != ".":
        return True
    before = text[max(0, stop.start() - 40) : stop.start()].split()
    word = before[-1].lstrip(_OPENING).lower() if before else ""
    if word in _TITLES or (len(word) == 1 and word.isalpha() and word != "i"):
        return False
    if word in _BEFORE_NUMBERS:
        return not next_word[:1].isdigit()
    if "." in word or word in _MAYBE_LAST:
        return next_word.rstrip(",.").lower() in _OPENERS
    return True
