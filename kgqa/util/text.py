"""Text for terminals and messages: counts, control characters, and streams that are closed or full."""

from __future__ import annotations

import errno
import io
import math
import os
import re
import sys
from typing import Any, TextIO

from kgqa.errors import StorageError

# C0 without tab and newline, DEL, C1, bidirectional overrides, half surrogate pairs
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
# of English text
BYTES_PER_TOKEN = 4


def pluralize(number: int, noun: str) -> str:
    """Return a count with its noun: 1 question, 1,200 questions."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def score_text(value: float | None, sign: str = "", digits: int = 1) -> str:
    """Return a score or a difference in points with some decimals, "–" for None. sign: "+" shows that of positive ones.

    The order of a sum changes its last digits: 12.7499999999 and 12.75 are the same score. A value that is rounded to 0
    has no sign: -0.0 would look like a difference.
    """
    if value is None:
        return "–"
    # adding 0 removes the sign of -0.0
    number = round(round(value, 6), digits) + 0.0
    return f"{number:{sign if number else ''}.{digits}f}"


def duration(seconds: float) -> str:
    """Return a time with its unit: 45 s, 12 min, 3.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"


def seconds_text(seconds: float) -> str:
    """Return a latency with its unit: 12 ms, 1.5 s."""
    milliseconds = 1000 * seconds
    if milliseconds < 100:
        return f"{milliseconds:.{1 if 0 < milliseconds < 1 else 0}f} ms"
    return f"{seconds:,.1f} s"


def shorten(text: str, most: int, end: int = 0) -> str:
    """Return the text, or its first `most` and last `end` characters with the number of the others."""
    more = len(text) - most - end
    last = text[len(text) - end :]
    return text if more <= 0 else f"{text[:most]}… ({more:,} more characters){last}"


def find_words(text: str) -> list[str]:
    """Return the words of a text in lower case, without punctuation."""
    return re.findall(r"\w+", text.casefold())


def contains_words(text: str, part: str) -> bool:
    """Return whether a text contains the words of another one in their order, ignoring case and punctuation."""
    words = " ".join(find_words(part))
    return bool(words) and f" {words} " in f" {' '.join(find_words(text))} "


def escape_control(text: str) -> str:
    r"""Return the text with control characters written as escapes, such as \x1b. Newlines and tabs stay."""
    return _CONTROL.sub(_escape, text.replace("\r\n", "\n")) if _CONTROL.search(text) else text


def one_line(text: str) -> str:
    """Return the text in one line, with control characters escaped and single spaces between words."""
    return escape_control(" ".join(text.split()))


def escape_json(text: str) -> str:
    r"""Return a JSON text with its control characters as JSON escapes, such as \u001b, so that its value is equal."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escape(match: re.Match[str]) -> str:
    return (
        match[0].encode("ascii", "backslashreplace").decode()
        if ord(match[0]) > 0x7F
        else f"\\x{ord(match[0]):02x}"
    )


def protect_streams() -> None:
    """Drop output that cannot be written, so that `kgqa run … | head` still finishes the run.

    A full disk behind stdout raises a StorageError. Characters that the terminal's encoding lacks are escaped.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:  # noqa: PERF203 - closed: a file would get its number
            os.open(os.devnull, os.O_RDWR)
    sys.stdout, sys.stderr = _protect(sys.stdout, 1), _protect(sys.stderr, 2)


def _protect(stream: TextIO | None, number: int) -> TextIO:
    if stream is None:  # closed
        return io.TextIOWrapper(io.BufferedWriter(_Output(number)), "utf-8")
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.reconfigure(errors="backslashreplace")
    raw = getattr(stream.buffer, "raw", stream.buffer)  # PYTHONUNBUFFERED leaves out the buffer
    if type(raw) is not io.FileIO or raw.fileno() != number:
        return stream
    by_line = stream.line_buffering or raw is stream.buffer
    buffer = io.BufferedWriter(_Output(number))
    return io.TextIOWrapper(buffer, stream.encoding, "backslashreplace", line_buffering=by_line)


class _Output(io.FileIO):
    """A standard stream that discards everything after the first failed write."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)
        self._is_terminal = self.isatty()

    def write(self, content: Any, /) -> int:
        try:
            return super().write(content)
        except OSError as error:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.fileno())
            os.close(null)
            has_hung_up = error.errno == errno.EPIPE or (
                error.errno == errno.EIO and self._is_terminal
            )
            if self.fileno() == 1 and not has_hung_up:
                reason = os.strerror(error.errno or errno.EIO)
                raise StorageError(
                    f"standard output: {reason}. Free disk space or redirect it, then run the same command again"
                ) from error
            return len(content)


def estimate_tokens(text: str) -> int:
    """Return a rough number of tokens, where neither a tokenizer nor a server counts them."""
    return math.ceil(len(text.encode("utf-8", "surrogatepass")) / BYTES_PER_TOKEN)
