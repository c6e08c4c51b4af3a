"""Turn a configuration node into the object its `_target_` names, checking every key and value on the way."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from kgqa.constraints import Bound
from kgqa.errors import ConfigError, nearest
from kgqa.experiment.config.importing import target
from kgqa.types import Json


def build(node: Mapping[str, Any], key: str, **given: Any) -> Any:
    """Call the `_target_` with the node's values; nested nodes are built first, `given` adds built objects.

    Raises:
        ConfigError: naming the key, the value and what was expected.
    """
    path = str(node.get("_target_", ""))
    made = target(path, key)
    expected = _parameters(made, f"{key}._target_={path}")
    values = {name: value for name, value in node.items() if name != "_target_"}
    for name in values:
        if name not in expected or name in given:
            raise ConfigError(f"{key}.{name}={values[name]}: unknown key; {nearest(name, set(expected) - set(given))}")
    missing = sorted(set(expected) - set(values) - set(given))
    if missing:
        raise ConfigError(f"{key}: missing {', '.join(missing)}")
    checked = {name: _value(f"{key}.{name}", value, expected[name]) for name, value in values.items()}
    return made(**checked, **given)


def _parameters(made: Callable[..., Json], said: str) -> dict[str, Any]:
    try:
        hints = get_type_hints(made, include_extras=True)
        if dataclasses.is_dataclass(made):
            return {field.name: hints[field.name] for field in dataclasses.fields(made) if field.init}
        return {name: hints.get(name, Any) for name in inspect.signature(made).parameters}
    except (NameError, TypeError, ValueError) as error:  # a type that only type checkers import, or nothing to call
        raise ConfigError(f"{said}: cannot be built: {error}") from error


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
    """Refuse a value that is out of the bounds its type names, see `kgqa.constraints`; also one within it."""
    if get_origin(expected) is Annotated:
        for bound in expected.__metadata__:
            if isinstance(bound, Bound) and not bound.holds(value):
                raise ConfigError(f"{key}={value}: {bound.words}")
    for name, part, type_ in _within(value, expected):
        _hold(f"{key}{name}", part, type_)


def _within(value: Any, expected: Any) -> Iterator[tuple[str, Any, Any]]:
    """What a value consists of: how the key goes on, the part, and its type."""
    origin, types = get_origin(expected), get_args(expected)
    if origin is Annotated:
        yield "", value, expected.__origin__
    elif origin in (Union, UnionType):
        yield from (("", value, type_) for type_ in types if value is not None)
    elif dataclasses.is_dataclass(expected) and dataclasses.is_dataclass(value):  # of plain keys, without `_target_`
        yield from ((f".{name}", getattr(value, name), type_) for name, type_ in _parameters(type(value), "").items())
    elif isinstance(value, Mapping) and len(types) == 2:
        yield from ((f".{name}", part, types[1]) for name, part in value.items())
    elif isinstance(value, tuple) and len(types) == 2:  # tuple[type, ...]
        yield from (("", part, types[0]) for part in value)
