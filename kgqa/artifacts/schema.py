"""The base of every typed file, and the readers that check JSON against it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError, to_jsonable_python
from typing_extensions import Self

from kgqa.errors import DataError
from kgqa.types import Json
from kgqa.util.fs import open_file
from kgqa.util.jsonio import MOST_BYTES, check_size, decode_json, iterate_lines

T = TypeVar("T")


def _reject_infinity(value: int | float) -> int | float:
    if not abs(value) <= sys.float_info.max:
        raise PydanticCustomError("finite_number", "Input should be a finite number")
    return value


Count = Annotated[int, Field(ge=-(2**63), lt=2**63)]
# numbers are written as they were read
Number = Annotated[int | float, AfterValidator(_reject_infinity)]
AGAIN = "Run the same command again to rewrite it."
NO_RUN = (
    "no such file, so this is not the folder of a finished run. "
    "Name the folder that kgqa run printed, or run its command again."
)


class Artifact(BaseModel):
    """A value in a JSON file. Its fields are the keys in order. Unknown keys are ignored."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    def json(self) -> dict[str, Json]:  # type: ignore[override]
        """Return the value as `json.dumps` accepts it."""
        return self.model_dump(mode="json")

    def replace(self, **changes: object) -> Self:
        """Return a copy with other values of some fields."""
        return self.model_copy(update=changes)


def omit_none() -> Any:
    """Return the default of a field that the file omits if it is None."""
    return Field(default=None, exclude_if=lambda value: value is None)


def as_json(value: object) -> Json:
    """Return artifacts, dataclasses, mappings and sequences as `json.dumps` accepts them."""
    return to_jsonable_python(value)


def extend(kind: Callable[..., T], summary: Artifact, **more: object) -> T:
    """Build a `kind` from the fields of a summary and `more`."""
    return kind(**dict(summary), **more)


def read(kind: type[T], file: Path, *, missing: str = NO_RUN, remedy: str = AGAIN) -> T:
    """Read a file that holds one value.

    Raises:
        DataError: the file is missing, is not JSON, or a key is missing or of another type. The message names the key.
    """
    return check_json(kind, read_json(file, missing=missing, remedy=remedy), str(file), remedy)


def read_json(file: Path, *, missing: str = NO_RUN, remedy: str = AGAIN) -> Json:
    """Decode a JSON file. Raises DataError if it is missing or is not JSON."""
    try:
        with open_file(file) as source:
            return decode_json(check_size(source.read(MOST_BYTES + 1)))
    except FileNotFoundError as error:
        raise DataError(f"{file}: {missing}") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: not readable ({error}). {remedy}") from error


def read_lines(file: Path, remedy: str = AGAIN) -> Iterator[tuple[str, Json]]:
    """Yield the location "FILE:LINE" and the value of each line. Raises DataError if a line cannot be read."""
    location = str(file)
    try:
        with open_file(file) as source:
            for number, line in enumerate(iterate_lines(source), start=1):
                location = f"{file}:{number}"
                yield location, decode_json(line)
    except (OSError, ValueError) as error:
        raise DataError(f"{location}: not readable ({error}). {remedy}") from error


def check_json(kind: type[T], value: Json, location: str, remedy: str = AGAIN) -> T:
    """Convert decoded JSON to `kind`. Raises DataError if a key is missing or has a value of another type."""
    try:
        return validate(kind, value)
    except ValidationError as error:
        raise DataError(
            f"{location}: {explain(error)}: damaged, or written by another version of kgqa. {remedy}"
        ) from error


def validate(kind: type[T], value: Json) -> T:
    """Convert decoded JSON to `kind`. Raises pydantic's ValidationError."""
    adapter: TypeAdapter[T] = _adapter(kind)  # type: ignore[arg-type]
    return adapter.validate_python(value)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def explain(error: ValidationError) -> str:
    """Return the first error, in words of JSON."""
    first = error.errors(include_url=False)[0]
    kind = first["type"]
    key = ".".join(str(part) for part in first["loc"] if part not in ("int", "float"))  # of a union
    if kind == "missing":
        return f"{key} is missing"
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"{key}={first['input']!r:.60} is an unknown key"
    expected = first["msg"].removeprefix("Input should be ").partition(",")[0]
    if kind in ("model_type", "dataclass_type", "dict_type", "mapping_type"):
        expected = "a valid object"
    elif kind in ("list_type", "tuple_type", "frozen_set_type"):
        expected = "a valid list"
    elif kind.startswith("int_"):
        expected = "a valid integer"
    return f"{key or 'its content'}={first['input']!r:.60} is not {expected}"
