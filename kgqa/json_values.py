"""JSON that nobody vouches for: whatever is wrong with it is one kind of error, which a reader gives a place."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NoReturn, TypeVar

from kgqa.errors import DataError
from kgqa.types import Json

T = TypeVar("T")
DIGITS = 300  # of a whole number: what more digits mean is no float, and Python itself refuses 4,300
DEEP = "it is nested too deeply"
CUT_SHORT = "correct it; if the file is cut short, fetch it again"


class NotJson(ValueError):
    """Why a text is no JSON, or none that can be used; `at`: where, in characters from 0, None where nobody knows."""

    def __init__(self, why: str, at: int | None = None) -> None:
        super().__init__(why)
        self.why, self.at = why, at


def decoded(text: str | bytes) -> Json:
    """The value that a whole text is.

    Raises:
        NotJson: it is none, is not UTF-8, nested deeper than Python reads, or has a number that no float can hold.
            NaN and Infinity are no JSON either; what kgqa itself writes may hold them, see `decoded_trace`.
    """
    return _told(lambda: _STRICT.decode(text if isinstance(text, str) else text.decode("utf-8")))


def decoded_trace(text: str) -> Json:
    """The same of a trace's line, where the log-probability of what cannot be is -Infinity."""
    return _told(lambda: _LENIENT.decode(text))


def decoded_pairs(text: str, made: Callable[[list[tuple[str, Json]]], Json]) -> Json:
    """As `decoded`, where objects are what `made` makes of their pairs: it sees keys that stand there twice."""
    decoder = json.JSONDecoder(parse_int=_whole, parse_constant=_refused, object_pairs_hook=made)
    return _told(lambda: decoder.decode(text))


def first_value(text: str, at: int = 0) -> tuple[Json, int]:
    """The value that begins at this place of a text, and where it ends. Raises NotJson as `decoded`."""
    return _told(lambda: _STRICT.raw_decode(text, at))


def read_value(text: str | bytes, place: str, remedy: str = CUT_SHORT) -> Json:
    """As `decoded`, for a file that a person gave; `place` is where it stands, e.g. FILE:LINE.

    Raises:
        DataError: with the place, what is wrong, and the remedy.
    """
    try:
        return decoded(text)
    except NotJson as error:
        raise DataError(f"{place}: not JSON: {error}; {remedy}") from None


def _told(read: Callable[[], T]) -> T:
    try:
        return read()
    except json.JSONDecodeError as error:
        raise NotJson(error.msg, error.pos) from None
    except UnicodeDecodeError as error:
        raise NotJson(f"not UTF-8 (byte 0x{error.object[error.start]:02x})") from None
    except RecursionError:
        raise NotJson(DEEP) from None


def _whole(digits: str) -> int:
    if len(digits) > DIGITS:
        raise NotJson(f"a number of {len(digits):,} digits ({digits[:10]}…); {DIGITS} are the most")
    return int(digits)


def _refused(name: str) -> NoReturn:
    raise NotJson(f"{name} is no value of JSON; null stands for a number that is not known")


_STRICT = json.JSONDecoder(parse_int=_whole, parse_constant=_refused)
_LENIENT = json.JSONDecoder(parse_int=_whole)
