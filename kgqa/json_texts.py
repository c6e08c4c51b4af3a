"""JSON as it is written where texts are long: each text once through an encoder in Rust, the rest as `json` writes it.

But for a request's numbers, the bytes are those of `json.dumps(…, ensure_ascii=False)`. Prompts of 17 kB go into a key,
a request and a trace, and were most of what encoding these cost.
"""

from __future__ import annotations

import json
import secrets

from kgqa.types import Json

_SPACED = json.JSONEncoder(ensure_ascii=False).encode
_MARK = secrets.token_hex(16)  # no text holds it by chance, and none can forge it
_MARKED = f'"{_MARK}"'.encode()


def quoted(text: str, errors: str = "surrogatepass") -> bytes:
    """A text as JSON in UTF-8. `errors`: what becomes of half a character, which only Python's own encoder writes."""
    from pydantic_core import to_json

    try:
        return to_json(text)
    except ValueError:
        return _SPACED(text).encode("utf-8", errors)


def compact(value: Json) -> bytes:
    """A request without blanks between its parts, numbers as short as they can be.

    Raises:
        ValueError: it holds half a character.
    """
    from pydantic_core import to_json

    return to_json(value)


class LongTexts:
    """Those of one line: each is put aside with a mark in its place, and comes back when the line is written."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def aside(self, text: str) -> str:
        """The mark to write in place of a text."""
        self._texts.append(text)
        return _MARK

    def line(self, value: Json) -> bytes:
        """The value's JSON with blanks after colons and commas, half characters spelt out, and a line's end."""
        pieces = _SPACED(value).encode("utf-8", "backslashreplace").split(_MARKED)
        whole = [pieces[0]]
        for text, piece in zip(self._texts, pieces[1:], strict=True):
            whole += quoted(text, "backslashreplace"), piece
        return b"".join([*whole, b"\n"])
