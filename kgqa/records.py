"""JSON of any size, read as a stream: an array, one object a line, or one object of many members; plain or gzipped."""

from __future__ import annotations

import codecs
import gzip
import re
import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO

from kgqa.errors import DataError
from kgqa.json_values import NotJson, decoded, first_value
from kgqa.types import Json

CHUNK = 1 << 20  # bytes read at a time
GZIP = b"\x1f\x8b"
_BLANKS = re.compile(r"[\s,]*")
LONGEST = 1 << 28  # characters of one record: a file that unpacks to more in one line is no data


def records(file: Path) -> Iterator[tuple[str, Json]]:
    """Each record of a JSON array or JSONL file, with its place for messages: "FILE:LINE", or "FILE: record N (id X)".

    Whether the file is gzipped, and which of the two it is, is seen from its content. A byte order mark is skipped.
    Memory holds one record and a chunk of the file.

    Raises:
        DataError: unreadable, empty, cut short, not UTF-8 or not JSON.
    """
    window = _Window(file)
    if window.peek() == "[":
        for number, record in enumerate(window.items(), start=1):
            yield f"{file}: record {number}{_id(record)}", record
        return
    for number, line in window.lines():
        yield f"{file}:{number}", _parsed(line, file, number)


def members(file: Path) -> Iterator[tuple[str, str, Json]]:
    """Each member of a file that is one JSON object: its place, key and value; read as `records` reads."""
    window = _Window(file)
    window.expect("{")
    while window.peek() != "}":
        line, key = window.line, window.value()
        window.expect(":")
        if not isinstance(key, str):
            raise DataError(f"{file}:{line}: {key!r}: a key must be a string; correct the file")
        yield f"{file}:{line} ({key})", key, window.value()
    window.finish("}")


def head(file: Path, size: int) -> str:
    """The first `size` characters or so."""
    text = ""
    for chunk in _chunks(file):
        text += chunk
        if len(text) >= size:
            break
    return text


class _Window:
    """The part of a file's text that is being looked at; it only moves forward."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._chunks = _chunks(file)
        self._text = ""
        self._at = 0
        self._line, self._counted = 1, 0  # the number of the line at place `_counted` of the window
        if not self.peek():
            raise DataError(f"{file}: the file is empty; fetch it again")

    @property
    def line(self) -> int:
        """Of the place that is looked at, from 1."""
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line

    def peek(self) -> str:
        """The next character that is neither blank nor comma, "" at the end."""
        while True:
            match = _BLANKS.match(self._text, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more(1):
                return ""

    def expect(self, character: str) -> None:
        if self.peek() != character:
            raise _not_json(self._file, self.line, f"expected {character!r}", self._text, self._at)
        self._at += 1

    def finish(self, character: str) -> None:
        """The closing bracket, and nothing after it."""
        self.expect(character)
        if self.peek():
            raise _not_json(self._file, self.line, f"more after the closing {character!r}", self._text, self._at)

    def items(self) -> Iterator[Json]:
        self.expect("[")
        while self.peek() != "]":
            yield self.value()
        self.finish("]")

    def lines(self) -> Iterator[tuple[int, str]]:
        """Lines that are not blank, from where the window is, with their numbers."""
        number, begun, held = self.line, list[str](), 0
        for chunk in chain([self._text[self._at :]], self._chunks):
            first, *whole = chunk.split("\n")
            begun.append(first)
            held += len(first)
            if held > LONGEST:
                raise _too_long(self._file, number)
            if not whole:
                continue
            for line in ("".join(begun), *whole[:-1]):
                if line.strip():
                    yield number, line
                number += 1
            begun, held = [whole[-1]], len(whole[-1])
        if (line := "".join(begun)).strip():
            yield number, line

    def value(self) -> Json:
        self.peek()
        while True:
            try:
                value, end = first_value(self._text, self._at)
            except NotJson as error:
                at = self._at if error.at is None else error.at
                cut = error.why.startswith("Unterminated") or at > len(self._text) - len("\\uXXXX")
                if len(self._text) - self._at > LONGEST:
                    raise _too_long(self._file, self.line) from None
                # twice as much each time, so that a long record is not decoded over and over
                if cut and self._more(len(self._text) - self._at):
                    continue
                line = self.line + self._text.count("\n", self._at, at)
                raise _not_json(self._file, line, error.why, self._text, at) from None
            if end < len(self._text) or not self._more(1):  # at the window's end a number may go on
                self._at = end
                return value

    def _more(self, wanted: int) -> bool:
        """Let go of what is behind and read at least `wanted` characters; False at the end of the file."""
        _ = self.line
        parts = [self._text[self._at :]]
        self._at = self._counted = 0
        while wanted > 0 and (chunk := next(self._chunks, "")):
            parts.append(chunk)
            wanted -= len(chunk)
        self._text = "".join(parts)
        return len(parts) > 1


def _chunks(file: Path) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    before = 0
    try:
        with _opened(file) as source:
            raw = source.read(CHUNK)
            while raw:
                text = decoder.decode(raw)
                before += text.count("\n")
                if text:
                    yield text
                raw = source.read(CHUNK)
            decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        line = before + error.object.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{file}:{line}: not UTF-8 (byte 0x{error.object[error.start]:02x}); convert the file to UTF-8"
        ) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{file}: broken gzip file ({error}); fetch it again") from None
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}; name another file") from None


def _opened(file: Path) -> IO[bytes]:
    with file.open("rb") as source:
        gzipped = source.read(len(GZIP)) == GZIP
    return gzip.open(file, "rb") if gzipped else file.open("rb")  # type: ignore[return-value]


def _parsed(text: str, file: Path, line: int) -> Json:
    try:
        return decoded(text)
    except NotJson as error:
        raise _not_json(file, line, error.why, text, error.at or 0) from None


def _not_json(file: Path, line: int, why: str, text: str, at: int) -> DataError:
    shown = text[max(at - 20, 0) : at + 20]
    return DataError(
        f"{file}:{line}: not JSON: {why}, near {shown!r}; "
        "expected a JSON array or one object a line; if the file is cut short, fetch it again"
    )


def _too_long(file: Path, line: int) -> DataError:
    return DataError(f"{file}:{line}: a record of more than {LONGEST:,} characters; correct the file")


def _id(record: Json) -> str:
    if not isinstance(record, dict):
        return ""
    identity = record.get("_id", record.get("id"))
    return f" (id {identity})" if identity is not None else ""
