"""Limits of configuration values, declared with their types: `beam: Count`.

Dataclasses do not check themselves. `kgqa.config.building` checks every value when it builds a part of a run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any


@dataclass(frozen=True)
class Validator:
    """A limit of a value. `check` gets a value of the annotated type; `message` follows "key=value: "."""

    message: str
    check: Callable[[Any], bool]

    def __get_pydantic_core_schema__(self, annotated: Any, handler: Callable[[Any], Any]) -> Any:
        """Check the value after pydantic has converted it."""
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(self._validate, handler(annotated))

    def _validate(self, value: Any) -> Any:
        if not self.check(value):
            raise ValueError(self.message)
        return value


_TYPES = {
    "int": "must be an integer", "bool": "must be true or false", "float": "must be a number",
    "string": "must be a text", "list": "must be a list, e.g. [a,b]", "tuple": "must be a list, e.g. [a,b]",
    "dict": "must be a mapping, e.g. {a: b}", "mapping": "must be a mapping, e.g. {a: b}",
    "model": "must be an object",
}  # fmt: skip


def explain_problem(problem: Mapping[str, Any]) -> str:
    """Return what a value must be, from an error of pydantic."""
    kind = str(problem["type"])
    if kind == "literal_error":
        return f"must be {problem['ctx']['expected']}"
    name, _, rest = kind.partition("_")
    words = _TYPES.get(name) if rest in ("type", "parsing", "from_float", "parsing_size") else None
    return words or str(problem["msg"]).lower()


def at_least(least: int) -> Validator:
    """Return the limit of a number with a minimum."""
    return Validator(f"must be at least {least}", lambda number: number >= least)


def matches(pattern: str, message: str) -> Validator:
    """Return the limit of a text that must match a regular expression completely."""
    return Validator(message, lambda text: re.fullmatch(pattern, text) is not None)


not_negative = Validator("must not be negative", lambda number: number >= 0)

Count = Annotated[int, at_least(1)]
Natural = Annotated[int, at_least(0)]
NotNegative = Annotated[float, not_negative]
Positive = Annotated[float, Validator("must be above 0", lambda number: number > 0)]
Seconds = Annotated[
    float, Validator("must be a number of seconds above 0", lambda seconds: 0 < seconds < math.inf)
]
# 0 waits for nothing
Patience = Annotated[
    float, Validator("must be a number of seconds from 0", lambda seconds: 0 <= seconds < math.inf)
]
Share = Annotated[float, Validator("must be between 0 and 1", lambda share: 0 <= share <= 1)]
Url = Annotated[
    str,
    Validator(
        "expected http://… or https://…", lambda url: url.startswith(("http://", "https://"))
    ),
]
