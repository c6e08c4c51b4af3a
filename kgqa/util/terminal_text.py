"""Show texts of files, models and servers in a terminal without executing the control characters in them."""

from __future__ import annotations

import re
import sys

# C0 without tab and newline, DEL, C1, bidirectional overrides, half surrogate pairs
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def escape_control(text: str) -> str:
    r"""Return the text with control characters written as escapes, such as \x1b. Newlines and tabs stay."""
    return _CONTROL.sub(_escape, text.replace("\r\n", "\n")) if _CONTROL.search(text) else text


def one_line(text: str) -> str:
    """Return the text in one line, with control characters escaped and single spaces between words."""
    return escape_control(" ".join(text.split()))


def escape_json(text: str) -> str:
    r"""Return a JSON text with its control characters as JSON escapes, such as \u001b, so that its value is equal."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def escape_unencodable() -> None:
    """Make stdout and stderr escape characters that the terminal's encoding does not have."""
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("ascii", "backslashreplace").decode() if ord(match[0]) > 0x7F else f"\\x{ord(match[0]):02x}"
