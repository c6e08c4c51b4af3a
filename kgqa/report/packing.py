"""Values made small for a page: long texts cut into paragraphs, a paragraph kept once, lines deflated and in base64."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable
from itertools import repeat
from math import isfinite

from kgqa.artifacts.trace import TracedCall
from kgqa.types import Json
from kgqa.util.jsonio import encode_json

REFERENCE = "\x00"  # the key of an object that stands for a text: {"\0": [numbers of its paragraphs]}
SHARED = 2_000_000  # characters of paragraphs kept for all questions: a browser unpacks them with the first one
_SHARABLE = 40  # characters; shorter texts are not worth a reference
_MET = 1 << 25  # places of the sieve of paragraphs met before: 4 MiB, however many there are
_BEST = 10  # texts of a ranking
_PLAIN = {int, bool, type(None)}  # types of what is small already
_TEXTS, _NUMBERS = {str}, {float}
_LEVEL = 3  # of zlib: half of 6's time for a page that is a tenth larger
_DIGITS = 4  # of a number after its point, as the page shows them: log-probabilities have sixteen, all random


def abridge_trace(call: TracedCall) -> dict[str, Json]:
    """Return the call as the page shows it: of a ranking only the best texts, best first, and how many there were
    (`of`).

    A chain's every step ranks the whole graph again, which would be most of the file.
    """
    shown = call.json()
    if shown["call"] != "rank" or not isinstance(shown["reply"], list):
        return shown
    best = sorted(zip(shown["reply"], shown["texts"], strict=True), key=lambda pair: -pair[0])[:_BEST]
    return {
        **shown,
        "of": len(shown["texts"]),
        "texts": [text for _, text in best],
        "reply": [score for score, _ in best],
    }


class Packing:
    """Makes values small: long texts are cut into paragraphs, and a paragraph is kept once.

    Prompts of one question repeat its passages, and prompts of all questions repeat the same demonstrations. A
    paragraph met in a second question goes to `shared`, so one that only one question has is never loaded for others;
    what comes when `shared` holds SHARED characters stays with its question.
    """

    def __init__(self) -> None:
        self.shared: list[str] = []
        self._room = SHARED
        self._numbers: dict[str, int] = {}  # of the shared paragraphs
        self._met = bytearray(_MET // 8)  # bits by CRC: a false match would share a paragraph too many, no more
        self._own: dict[str, int] = {}  # the paragraphs of the value in work

    def pack(self, value: Json) -> str:
        """Return a line for the value and its paragraphs: its own as texts, shared ones as their numbers."""
        self._own = {}
        packed = self._pack(value)
        return pack_line({"value": packed, "paragraphs": [self._reference(paragraph) for paragraph in self._own]})

    def _pack(self, value: Json) -> Json:
        """Return whole lists at once where they are of one kind: a large run has millions of values."""
        kind = type(value)
        if kind is str:
            return value if len(value) < _SHARABLE else self._cut(value)
        if kind is float:
            return round(value, _DIGITS) if isfinite(value) else str(value)  # JSON has no infinity
        if kind is dict:
            return {
                key: part
                if (kind := type(part)) in _PLAIN or (kind is str and len(part) < _SHARABLE)
                else self._pack(part)
                for key, part in value.items()
            }
        if kind is list or kind is tuple:
            kinds = set(map(type, value))
            if kinds == _TEXTS:
                return [part if len(part) < _SHARABLE else self._cut(part) for part in value]
            if kinds == _NUMBERS and isfinite(sum(value)):
                return list(map(round, value, repeat(_DIGITS)))
            return value if kinds <= _PLAIN else list(map(self._pack, value))
        return value

    def _cut(self, text: str) -> Json:
        """Return what stands for a text."""
        own = self._own
        return {REFERENCE: [own.setdefault(paragraph, len(own)) for paragraph in text.split("\n\n")]}

    def _reference(self, paragraph: str) -> str | int:
        if len(paragraph) < _SHARABLE:
            return paragraph
        if paragraph in self._numbers:
            return self._numbers[paragraph]
        if len(paragraph) > self._room or not self._point_back(paragraph):
            return paragraph
        self._room -= len(paragraph)
        self.shared.append(paragraph)
        return self._numbers.setdefault(paragraph, len(self._numbers))

    def _point_back(self, paragraph: str) -> bool:
        place, bit = divmod(zlib.crc32(paragraph.encode("utf-8", "surrogatepass")) % _MET, 8)
        met = bool(self._met[place] & 1 << bit)
        self._met[place] |= 1 << bit
        return met


def pack_line(value: Json) -> str:
    """Return the value's JSON, packed."""
    return _deflate([encode_json(value)])


def pack_list(values: Iterable[bytes]) -> str:
    """Return a list of values that are JSON already, packed."""
    return _deflate([b"[", b",".join(values), b"]"])


def compact_json(value: Json) -> str:
    """Return the compact json of ASCII, so that half a character stays JSON's own escape."""
    return json.dumps(value, separators=(",", ":"))


def _deflate(texts: Iterable[bytes]) -> str:
    """Return the text deflated and in base64, whose characters mean nothing in HTML: no text can end the element it
    stands
    in.
    """
    deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)  # without header: the browser's deflate-raw
    parts = list(map(deflate.compress, texts))
    return base64.b64encode(b"".join([*parts, deflate.flush()])).decode()
