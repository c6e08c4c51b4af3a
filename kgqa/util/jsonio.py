"""Read and write JSON: the standard library for values, ijson for large files."""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NoReturn

from kgqa.errors import DataError
from kgqa.types import Json
from kgqa.util.fs import open_file

ONE_OBJECT = "Write one JSON object per line."
CORRECT_IT = "Correct the file. If it is truncated, download it again."
IN_UTF8 = "Convert the file to UTF-8"
# bytes. yajl scans an incomplete text from its start again with each buffer
BUFFER = 1 << 22
# of lists and objects in each other
DEPTH = 200
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}|[\ud800-\udfff]")
# of a stored value or a line: 128 MiB
MOST_BYTES = 1 << 27
# in it: an empty list of 2 bytes takes 80 bytes of memory
MOST_VALUES = 8_000_000
_GZIP, _BOM = b"\x1f\x8b", b"\xef\xbb\xbf"


class JsonError(ValueError):
    """A text is not JSON, or has a value that cannot be used. `position` counts characters from 0."""

    def __init__(self, reason: str, position: int = 0) -> None:
        super().__init__(reason)
        self.position = position


class EncodingError(JsonError):
    """A text is not UTF-8."""


def decode_json(text: str | bytes) -> Json:
    """Return the value of a JSON text.

    Raises:
        JsonError: not JSON, not UTF-8, nested too deeply, or with NaN, Infinity or an integer of thousands of digits.
    """
    return _decode(text, allow_infinity=False)


def decode_stored(text: str | bytes) -> Json:
    """Return a value of a trace or of the call cache; raise a JsonError as `decode_json`.

    The log-probability of an impossible option is -Infinity, and a model's text can contain half a surrogate pair.
    """
    return _decode(check_size(text), allow_infinity=True)


def check_size(text: str | bytes) -> str | bytes:
    """Return the text. Raise a JsonError if its value could need more than 1 GiB of memory."""
    if len(text) > MOST_BYTES:
        raise JsonError(f"it is longer than {MOST_BYTES >> 20} MiB")
    if len(text) > MOST_VALUES:
        separators = (",", "[", "{") if isinstance(text, str) else (b",", b"[", b"{")
        if sum(map(text.count, separators)) > MOST_VALUES:  # type: ignore[arg-type]
            raise JsonError(f"it has more than {MOST_VALUES:,} values")
    return text


def iterate_lines(source: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file. Raise a JsonError if one is too long for `check_size`, also if it has no end."""
    while line := source.readline(MOST_BYTES + 1):
        check_size(line)
        yield line


def decode_first(text: str, start: int = 0) -> tuple[Json, int]:
    """Return the value that starts at this position and the position where it ends; raise a JsonError if none does."""
    with _explain_errors():
        return _FIRST.raw_decode(text, start)


def parse_json(text: str | bytes, location: str, remedy: str = CORRECT_IT) -> Json:
    """Return the value of a JSON text. Raise a DataError with the location, such as FILE:LINE, and the remedy."""
    try:
        return decode_json(text)
    except EncodingError as error:
        raise DataError(f"{location}: {error}. {IN_UTF8}") from None
    except JsonError as error:
        raise DataError(f"{location}: not JSON: {error}. {remedy}") from None


def encode_json(value: Json) -> bytes:
    """Return compact JSON in UTF-8. Half surrogates and infinite numbers are written as by Python's `json`."""
    try:
        return encode_request(value)
    except ValueError:
        return json.dumps(value, separators=(",", ":")).encode()


def encode_request(value: Json) -> bytes:
    """Return compact JSON in UTF-8; raise a ValueError if a text contains half a surrogate pair."""
    # orjson writes null for -Infinity, which log-probabilities can be
    from pydantic_core import to_json

    return to_json(value)


def stream_records(file: Path) -> Iterator[tuple[str, Json]]:
    """Yield each record of a JSON array or JSONL file, plain or gzipped, with FILE:LINE or FILE: record N.

    Memory holds one record and a part of the file.

    Raises:
        DataError: the file cannot be read, is empty, truncated, not UTF-8 or not JSON.
    """
    import ijson

    with _open_stream(file) as (source, first):
        if first == b"[":
            records = ijson.items(_CheckedStream(source), "item", buf_size=BUFFER, use_float=True)
            for number, record in enumerate(records, start=1):
                yield f"{file}: record {number}{_show_id(record)}", record
            return
        number = 0
        try:
            for number, line in enumerate(iterate_lines(source), start=1):
                if line.strip():
                    remedy = CORRECT_IT if line.lstrip()[:1] == b"{" else ONE_OBJECT
                    yield f"{file}:{number}", parse_json(line, f"{file}:{number}", remedy)
        except JsonError as error:
            raise DataError(f"{file}:{number + 1}: {error}. {CORRECT_IT}") from None


def stream_members(file: Path) -> Iterator[tuple[str, str, Json]]:
    """Yield each member of a file that is one JSON object, plain or gzipped: its location, key and value.

    Raises:
        DataError: as `stream_records`.
    """
    import ijson

    with _open_stream(file) as (source, first):
        if first != b"{":
            raise DataError(f"{file}: not a JSON object. {CORRECT_IT}")
        for key, value in ijson.kvitems(
            _CheckedStream(source), "", buf_size=BUFFER, use_float=True
        ):
            yield f"{file} ({key})", key, value


def read_start(file: Path, size: int) -> str:
    """Return the text of the first `size` bytes of a file, plain or gzipped; raise as `stream_records`."""
    with _open_stream(file) as (source, _):
        return codecs.getincrementaldecoder("utf-8")().decode(source.read(size))


def read_value(file: Path) -> Json:
    """Return the value of a JSON file, plain or gzipped; raise as `stream_records`, also if it is too large."""
    with _open_stream(file) as (source, _):
        return parse_json(check_size(source.read(MOST_BYTES + 1)), str(file))


def stream_lines(file: Path) -> Iterator[str]:
    """Yield the lines of a text file, plain or gzipped, with their ends; raise as `stream_records`."""
    with _open_stream(file) as (source, _):
        for line in iterate_lines(source):
            yield line.decode("utf-8")


@contextmanager
def _open_stream(file: Path) -> Iterator[tuple[IO[bytes], bytes]]:
    """Open a file behind its byte order mark, and give its first character; turn errors into one line."""
    import ijson

    try:
        with open_file(file) as raw:
            is_gzipped = raw.read(2) == _GZIP
        with gzip.open(file) if is_gzipped else file.open("rb") as source:
            start = source.read(4096)
            source.seek(len(_BOM) if start.startswith(_BOM) else 0)
            first = start.removeprefix(_BOM).lstrip()[:1]
            if not first:
                raise DataError(
                    f"{file}: the file is empty. Name another file, or download it again"
                )
            yield source, first  # type: ignore[misc]
    except ijson.JSONError as error:
        # bytes if the file is not UTF-8
        detail = error.args[0]
        reason = (
            detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
        ).splitlines()[0]
        raise DataError(f"{file}: not JSON: {reason}. {CORRECT_IT}") from None
    except JsonError as error:
        raise DataError(f"{file}: {error}. {CORRECT_IT}") from None
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise DataError(f"{file}: not UTF-8 (byte 0x{byte:02x}). {IN_UTF8}") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{file}: broken gzip file ({error}). Download it again") from None
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}. Name another file") from None


class _CheckedStream:
    """A JSON file for ijson, which needs memory for the square of the depth. Raise a JsonError at a great depth."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        # a backslash at the end of the last part
        self._unread = b""
        self._in_string = False
        self._depth = self._record = 0

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes. Raise a JsonError for a depth above 200 or a value above `MOST_BYTES`."""
        part = self._source.read(size)
        self._record += len(part)
        text = _ESCAPE.sub(b"", self._unread + part)
        self._unread = b"\\" if text.endswith(b"\\") else b""
        texts = text.split(b'"')
        for bracket in b"".join(texts[self._in_string :: 2]).translate(None, _NO_BRACKETS):
            self._depth += 1 if bracket in b"[{" else -1
            if self._depth > DEPTH:
                raise JsonError("it is nested too deeply")
            if self._depth <= 1:
                self._record = 0
        if self._depth <= 1 and len(texts) > 1:
            self._record = 0
        self._in_string ^= not len(texts) % 2
        if self._record > MOST_BYTES:
            raise JsonError(f"a value is longer than {MOST_BYTES >> 20} MiB")
        return part


@contextmanager
def _explain_errors() -> Iterator[None]:
    try:
        yield
    except json.JSONDecodeError as error:
        raise JsonError(error.msg, error.pos) from None
    except RecursionError:
        raise JsonError("it is nested too deeply") from None
    except ValueError as error:
        # what a hook rejects, or an integer of thousands of digits, of which Python says more
        raise JsonError(str(error).partition(" for integer string")[0]) from None


def _decode(text: str | bytes, *, allow_infinity: bool) -> Json:
    # it allows 200 levels of lists and objects
    from pydantic_core import from_json

    try:
        return from_json(text, allow_inf_nan=allow_infinity)
    except (ValueError, TypeError) as error:
        # a TypeError for half a surrogate pair
        _reject_depth(error)
    # Python's parser reads halves of surrogate pairs and explains errors better, but allows any depth
    try:
        plain = text if isinstance(text, str) else text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise EncodingError(f"not UTF-8 (byte 0x{error.object[error.start]:02x})") from None
    try:
        from_json(_HALF_PAIR.sub(" ", plain))
    except ValueError as error:
        _reject_depth(error)
    with _explain_errors():
        return json.loads(plain, parse_constant=None if allow_infinity else _reject_constant)


def _reject_depth(error: Exception) -> None:
    if "recursion limit" in str(error):
        raise JsonError("it is nested too deeply") from None


def _reject_constant(name: str) -> NoReturn:
    raise JsonError(f"{name} is not a JSON value. Write null for an unknown number")


def _show_id(record: Json) -> str:
    if not isinstance(record, dict):
        return ""
    identity = record.get("_id", record.get("id"))
    return "" if identity is None else f" (id {identity})"


_FIRST = json.JSONDecoder(parse_constant=_reject_constant)
