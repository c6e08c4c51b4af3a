"""Text that others wrote, as a terminal may show it: it moves no cursor, changes no colour and hides nothing.

File names, data sets, models and servers say what they like. Here is the one place that knows which characters a
terminal takes for orders, and which of ours it may not have; everything that is shown goes through `inert`.
"""

from __future__ import annotations

import codecs
import re
import sys

# C0 without tab and line end, DEL, C1, what turns the direction of writing, halves of characters
_ORDERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_PICTURES = 0x2400  # where Unicode's pictures of the 32 control characters begin: ␛ stands for ESC
_DELETE, _FIRST_HALF, _LAST_HALF = 0x7F, 0xD800, 0xDFFF
# what kgqa itself writes and old terminals do not have
_PLAIN = {"…": "...", "–": "-", "—": "-", "·": "|", "→": "->", "×": "x", "≤": "<=", "≥": ">=", "␛": "^[", "�": "?"}
_SPELT_OUT = "kgqa.spelt_out"


def inert(text: str) -> str:
    """The text with ␛ and the like for control characters, � for what turns the direction of writing.

    Lines end and tabs stay. Half of a character, as in a file's name that is not UTF-8, is spelt out: \\udcff.
    """
    return _ORDERS.sub(_picture, text.replace("\r\n", "\n")) if _ORDERS.search(text) else text


def one_line(text: str) -> str:
    """The same with single blanks for line ends and all other blanks."""
    return inert(" ".join(text.split()))


def inert_json(text: str) -> str:
    """JSON's text with JSON's own escapes for them: it stays what it says."""
    return _ORDERS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def spell_out() -> None:
    """Let what stdout and stderr cannot encode, on an ASCII terminal or any other, be spelt out from now on."""
    codecs.register_error(_SPELT_OUT, _spelt_out)
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):  # not where somebody put another stream
            reconfigure(errors=_SPELT_OUT)


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < ord(" "):
        return chr(_PICTURES + code)
    if code == _DELETE:
        return "␡"
    return f"\\u{code:04x}" if _FIRST_HALF <= code <= _LAST_HALF else "�"


def _spelt_out(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(map(_ascii, error.object[error.start : error.end])), error.end


def _ascii(character: str) -> str:
    if "─" <= character <= "╿":  # lines of tables
        return "-"
    return _PLAIN.get(character) or character.encode("ascii", "backslashreplace").decode()
