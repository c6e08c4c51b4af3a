"""Frozen types and the JSON they stand for: fields are keys, in their order; what is read is checked against them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kgqa.errors import DataError
from kgqa.json_values import DEEP, decoded
from kgqa.types import Json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from pydantic import TypeAdapter  # imported where it is needed: it takes a tenth of a second

T = TypeVar("T")
_ADAPTERS: dict[type, TypeAdapter[Json]] = {}
Number = int | float  # of either kind, so that what is read is written as it was
LEFT_OUT = {"left out": True}  # metadata of a field: where it is None, the file has no such key
AGAIN = "run the same command again to rewrite it"
NO_RUN = (
    "no such file, so this is not the folder of a run that ended; "
    "give the folder that kgqa run printed, or run its command again"
)
_NAMED = {  # what pydantic calls them, and what they are in JSON
    "a dictionary": "an object",
    "dictionary": "object",
    "mapping": "object",
    "frozenset": "list",
    "tuple": "list",
}


def as_json(value: object) -> Json:
    """Whatever `json.dumps` takes, keys in the order of the fields."""
    if is_dataclass(value):
        named = ((field, getattr(value, field.name)) for field in fields(value))
        return {field.name: as_json(member) for field, member in named if member is not None or not field.metadata}
    if isinstance(value, Mapping):
        return {key: as_json(member) for key, member in value.items()}
    return [as_json(member) for member in value] if isinstance(value, tuple | list) else value


def extended(kind: Callable[..., T], summary: DataclassInstance, **more: object) -> T:
    """`kind` with the fields of a summary, which are some of its own, and the others."""
    return kind(**{field.name: getattr(summary, field.name) for field in fields(summary)}, **more)


def read(kind: type[T], file: Path, *, missing: str = NO_RUN, remedy: str = AGAIN) -> T:
    """A file that holds one value; keys that `kind` does not know are passed over.

    Raises:
        DataError: there is no such file, it is no JSON, or a key is missing or of another type; the key is named.
    """
    return checked(kind, read_json(file, missing=missing, remedy=remedy), str(file), remedy)


def read_json(file: Path, *, missing: str = NO_RUN, remedy: str = AGAIN) -> Json:
    """Raises DataError: there is no such file, or it is no JSON."""
    try:
        return decoded(file.read_bytes())
    except FileNotFoundError as error:
        raise DataError(f"{file}: {missing}") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: not readable ({error}); {remedy}") from error


def read_lines(file: Path, remedy: str = AGAIN) -> Iterator[tuple[str, Json]]:
    """The value on each line, with its place for messages: "FILE:LINE".

    Raises:
        DataError: the file cannot be read, or a line is no JSON.
    """
    place = str(file)
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                place = f"{file}:{number}"
                yield place, decoded(line)
    except (OSError, ValueError) as error:
        raise DataError(f"{place}: not readable ({error}); {remedy}") from error


def checked(kind: type[T], value: Json, place: str, remedy: str = AGAIN) -> T:
    """What JSON says, as `kind`; `place` is where it stands, for the message.

    Raises:
        DataError: a key is missing or its value of another type.
    """
    from pydantic import TypeAdapter, ValidationError

    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    try:
        form: T = _ADAPTERS[kind].validate_python(value)
    except RecursionError:
        raise DataError(f"{place}: {DEEP}; {remedy}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = [str(part) for part in first["loc"] if part not in ("int", "float")]  # those name members of a union
        complaint = _complaint(".".join(path), first["type"], first["msg"], first["input"])
        raise DataError(f"{place}: {complaint}: damaged, or written by another version of kgqa; {remedy}") from error
    return form


def _complaint(key: str, kind: str, message: str, value: Json) -> str:
    if kind == "missing":
        return f"{key} is missing"
    wanted = message.removeprefix("Input should be ").partition(",")[0].partition(" or an instance")[0]
    for ours, theirs in _NAMED.items():
        wanted = wanted.replace(ours, theirs)
    return f"{key or 'its content'}={value!r:.60} is not {wanted}"
