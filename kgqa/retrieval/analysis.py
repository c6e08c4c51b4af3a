"""Words for BM25 as Elasticsearch's `english` analyzer (Lucene's EnglishAnalyzer) makes them.

Words of Unicode's annex 29 → without possessive 's → lower case → without Lucene's 33 stop words → Porter stems.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Any

# of the analysis; an index of another one is not used
VERSION = 1
# characters of a word; Lucene cuts longer ones into pieces
LONGEST = 255
# runs between blanks with their terms in memory, about 50 MB
REMEMBERED = 1 << 18
STOP_WORDS = frozenset(
    (
        "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no", "not",
        "of", "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this", "to", "was",
        "will", "with",
    )
)  # fmt: skip


def analyze_text(text: str) -> str:
    """Return the terms of a text in order, separated by blanks; empty for a text without words.

    Words never cross a blank, so each run between blanks is looked up by itself, and texts repeat their runs.
    """
    # the narrow blank of "10 000" joins as an underscore does
    runs = text.replace("\u202f", "_").split()
    return " ".join(map(_run_terms, runs))


def terms(text: str) -> list[str]:
    return analyze_text(text).split()


@lru_cache(REMEMBERED)
def _run_terms(run: str) -> str:
    """Return the terms of a run without blanks."""
    terms = [run.strip(_SIGNS)]
    if not _PLAIN.fullmatch(terms[0]):
        # pieces, as matching takes time in the square of a run's length
        pieces = (run[at : at + 4 * LONGEST] for at in range(0, len(run), 4 * LONGEST))
        terms = [match[0] for piece in pieces for match in _word_pattern().finditer(piece)]
    words = [
        word[at : at + LONGEST]
        for word in terms
        if word.strip("_")
        for at in range(0, len(word), LONGEST)
    ]
    return " ".join(term for word in words if (term := _term(word)))


def _term(word: str) -> str:
    """Return the stem of a word, or "" for a stop word."""
    if word[-2:] in _POSSESSIVES:
        word = word[:-2]
    # one character at a time, as Java does: no final sigma, and İ gives i without its dot
    word = word.replace("Σ", "σ").replace("İ", "i").lower()
    if word in STOP_WORDS:
        return ""
    return _stemmer().stemWord(_as_martin_porter_does(word)) if len(word) > 2 else word


# most runs are one word between signs, and are found six times as fast as with the pattern of all languages
# none of them is a word, or begins or ends one
_SIGNS = ".,;:'\"!?()[]/-“”‘’–—…"
_PLAIN = re.compile("[0-9A-Za-zÀ-ÖØ-öø-ɏ]+")
_POSSESSIVES = frozenset(apostrophe + s for apostrophe in "'’＇" for s in "sS")


@cache
def _stemmer() -> Any:
    from Stemmer import Stemmer

    return Stemmer("porter", 0)  # without a second cache


@cache
def _word_pattern() -> Any:
    """Return rules WB5 to WB13b of annex 29 (WB7a to WB7c: quotes in Hebrew), and Lucene's rules for emoji and for
    the scripts that the annex leaves to dictionaries."""
    import regex

    return regex.compile(
        r"""
        (?(DEFINE)
          (?<x> [\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}]* )
          (?<picture> [\p{Extended_Pictographic}\u261a-\u266f] )
          (?<letter> [\p{WB=ALetter}\p{WB=Hebrew_Letter}] (?&x) )
          (?<digit> \p{WB=Numeric} (?&x) )
          (?<katakana> \p{WB=Katakana} (?&x) )
          (?<joint> \p{WB=ExtendNumLet} (?&x) )
          (?<middle> [\p{WB=MidLetter}\p{WB=MidNumLet}'] (?&x) | (?<=\p{WB=Hebrew_Letter})"(?=\p{WB=Hebrew_Letter}) )
          (?<letters> (?&letter) (?: (?: (?&joint)* | (?&middle) ) (?&letter) )* (?: (?<=\p{WB=Hebrew_Letter})' )? )
          (?<digits> (?&digit) (?: (?: (?&joint)* | [\p{WB=MidNum}\p{WB=MidNumLet}'] (?&x) ) (?&digit) )* )
          (?<part> (?&katakana) (?: (?&joint)* (?&katakana) )* | (?: (?&letters) | (?&digits) )+ )
        )
        (?<!\p{WB=ExtendNumLet}) (?&joint)* (?&part) (?: (?&joint)+ (?&part) )* (?&joint)*
        | (?:\p{LB=SA} (?&x))+
        | [\p{Script=Han}\p{Script=Hiragana}] (?&x)
        | \p{RI}(?&x)\p{RI}(?&x)
        | [\#*0-9]\ufe0f?\u20e3
        | (?&picture) (?: \p{EMod} | \ufe0f | \u200d(?&picture) )*
        """,
        regex.VERBOSE | regex.VERSION1,
    )


# Lucene stems like Martin Porter's own program. PyStemmer follows his paper. The program has two more rules in step 2,
# (m>0) bli → ble and logi → log, and undoubles every consonant in step 1b. These words get the result in advance, which
# the earlier steps do not change.
_ADDED = re.compile(r"(?P<stem>.*)(?:(?P<bl>bl)|log)(?:[iy](?:eds?|ings?|s)?|ies)")
_DOUBLED = re.compile(r"(?P<stem>.*[aeiouy].*?)(?P<letter>[chjkqvwx])(?P=letter)(?:eds?|ings?)")
# m>0; y is a vowel after a consonant
_MEASURED = re.compile(r"[aeiou][^aeiou]|^[^aeiou]+y[^aeiou]")


def _as_martin_porter_does(word: str) -> str:
    if (
        ("bl" in word or "log" in word)
        and (added := _ADDED.fullmatch(word))
        and _MEASURED.search(added["stem"])
    ):
        return added["stem"] + ("ble" if added["bl"] else "log")
    if doubled := _DOUBLED.fullmatch(word):
        return doubled["stem"] + doubled["letter"]
    return word
