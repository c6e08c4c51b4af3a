"""Turn a configuration node into the object its `_target_` names, checking every key and value on the way."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from kgqa.config.importing import import_target
from kgqa.config.renamed import check_renamed
from kgqa.errors import ConfigError, nearest
from kgqa.types import Json
from kgqa.util.validators import Validator


def build(node: Mapping[str, Any], key: str, **given: Any) -> Any:
    """Call the `_target_` with the node's values; nested nodes are built first, `given` adds built objects.

    Raises:
        ConfigError: naming the key, the value and what was expected.
    """
    path = str(node.get("_target_", ""))
    made = import_target(path, key)
    expected = _parameters(made, f"{key}._target_={path}")
    values = {name: value for name, value in node.items() if name != "_target_"}
    for name in values:
        if name not in expected or name in given:
            check_renamed(f"{key}.{name}", str(values[name]))
            raise ConfigError(f"{key}.{name}={values[name]}: unknown key; {nearest(name, set(expected) - set(given))}")
    missing = sorted(set(expected) - set(values) - set(given))
    if missing:
        raise ConfigError(f"{key}: missing {', '.join(missing)}")
    checked = {name: _value(f"{key}.{name}", value, expected[name]) for name, value in values.items()}
    return made(**checked, **given)


def _parameters(made: Callable[..., Json], place: str) -> dict[str, Any]:
    try:
        hints = get_type_hints(made, include_extras=True)
        if dataclasses.is_dataclass(made):
            return {field.name: hints[field.name] for field in dataclasses.fields(made) if field.init}
        return {name: hints.get(name, Any) for name in inspect.signature(made).parameters}
    except (NameError, TypeError, ValueError) as error:  # a type that only type checkers import, or nothing to call
        raise ConfigError(f"{place}: cannot be built: {error}") from error


def _value(key: str, value: Any, expected: Any) -> Any:
    from pydantic import ConfigDict, TypeAdapter, ValidationError

    if isinstance(value, Mapping) and "_target_" in value:
        return build(value, key)
    if getattr(expected, "_is_protocol", False):
        group = expected.__name__.lower()
        raise ConfigError(f"{key}={value}: no settings of a {group}; choose a preset with {group}@{key}=NAME")
    if dataclasses.is_dataclass(expected):
        raise ConfigError(f"{key}={value}: has settings of its own; change one of them, {key}.KEY=VALUE")
    try:
        adapter = TypeAdapter(expected, config=ConfigDict(coerce_numbers_to_str=True, arbitrary_types_allowed=True))
        checked = adapter.validate_python(value)
    except ValidationError as error:
        raise ConfigError(f"{key}={value}: {error.errors()[0]['msg'].lower()}") from error
    _hold(key, checked, expected)
    return checked


def _hold(key: str, value: Any, expected: Any) -> None:
    """Raise a ConfigError for a value outside the limits of its type, or for one inside it."""
    if get_origin(expected) is Annotated:
        for bound in expected.__metadata__:
            if isinstance(bound, Validator) and not bound.check(value):
                raise ConfigError(f"{key}={value}: {bound.message}")
    for name, item, type_ in _inside(key, value, expected):
        _hold(f"{key}{name}", item, type_)


def _inside(key: str, value: Any, expected: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the parts of a value with their types; the name of a part starts with a dot."""
    origin, parts = get_origin(expected), get_args(expected)
    if origin is Annotated:
        yield "", value, expected.__origin__
    elif dataclasses.is_dataclass(expected) and dataclasses.is_dataclass(value):  # of plain keys, without `_target_`
        types = _parameters(type(value), key)
        yield from ((f".{name}", getattr(value, name), type_) for name, type_ in types.items())
    elif origin in (Union, UnionType):
        yield from (("", value, part) for part in parts if value is not None)
    elif isinstance(value, Mapping) and len(parts) == 2:
        yield from ((f".{name}", item, parts[1]) for name, item in value.items())
    elif isinstance(value, tuple) and len(parts) == 2:  # tuple[item, ...]
        yield from (("", item, parts[0]) for item in value)
