"""Turn a configuration node into the object its `_target_` names, checking every key and value on the way."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

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
        hints = get_type_hints(made)
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
        return adapter.validate_python(value)
    except ValidationError as error:
        raise ConfigError(f"{key}={value}: {error.errors()[0]['msg'].lower()}") from error
