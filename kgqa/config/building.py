"""Build the parts of an experiment: the object that a node's `_target_` names, with every key and value checked."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from inspect import get_annotations, getattr_static, getmro
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args, get_type_hints

from kgqa.config.files import Node
from kgqa.config.foreign_names import KEYS
from kgqa.config.overrides import override_values
from kgqa.config.run_keys import DATASET_KEYS
from kgqa.config.targets import find_target, import_target
from kgqa.errors import ConfigError, UsageError, nearest
from kgqa.protocols import Dataset, Engine, Method, Need
from kgqa.types import Json
from kgqa.util.redaction import function_line, hide_secret
from kgqa.util.settings import declared_fields
from kgqa.util.validators import explain_problem

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from kgqa.engines.weights import Model

T = TypeVar("T")
_ABSENT = object()
# kinds of parameters that are no settings
VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
# in the message after KEY=VALUE
UNKNOWN_KEY = ": unknown key"
# fields of a group that another group's choice sets
BUILT: Mapping[str, tuple[str, ...]] = {"engine": ("model",)}


def method(node: Node, function: object = None) -> Method:
    """Build a method. function: the function or object of Python that it runs, see `methods.function`."""
    part = build_part(node, "method", Method)
    if function is not None:
        part = cast(Any, part).bind(function)
    check_coroutine(part, "answer")
    uses, known = part.uses, get_args(Need)
    name = f"method._target_={node['_target_']}"
    if not isinstance(uses, set | frozenset):
        raise ConfigError(
            f"{name}: uses={uses!r} is no set. Write frozenset({{...}}) of {', '.join(known)}."
        )
    for need in sorted(uses - {*known}, key=str):
        raise ConfigError(f"{name}: uses contains {need!r}. {nearest(str(need), known)}")
    return part


def check_coroutine(part: object, name: str) -> None:
    """Raise a ConfigError if a method of an object is a plain function, whose result cannot be awaited."""
    function = inspect.unwrap(getattr(part, name))
    if inspect.ismethod(function) and not inspect.iscoroutinefunction(function):
        raise ConfigError(
            f"{function_line(function)}: {name} must be a coroutine. Write async def {name}, without yield"
        )


def dataset(node: Node) -> Dataset:
    """Build a dataset. Its file is read at the first use. Its keys in `DATASET_KEYS` belong to the run."""
    return build_part(
        {key: value for key, value in node.items() if key not in DATASET_KEYS}, "dataset", Dataset
    )


def model(node: Node) -> Model:
    """Build a model. Its node names the class, as that of every part does, so that this file does not import it."""
    built: Model = build(node, "model")
    return built


def engine(node: Node, model_node: Node) -> Engine:
    """Build an engine without loading a model. Your own can have no field for it."""
    types = check_node(node, "engine", BUILT["engine"])[1]
    built = {"model": model(model_node)} if "model" in types else {}
    return build_part(node, "engine", Engine, **built)


def build_part(node: Node, key: str, kind: Callable[..., T], **built: object) -> T:
    """Build an object of a class or protocol. Raise a ConfigError if it lacks a member."""
    return check_part(build(node, key, **built), node, key, kind)


def check_part(part: Any, node: Node, key: str, kind: Callable[..., T]) -> T:
    """Return the object. Raise a ConfigError if it lacks a member of a class or protocol."""
    assert isinstance(kind, type)
    members = dict.fromkeys(
        name for base in getmro(kind) for name in (*vars(base), *get_annotations(base))
    )
    lacks = [
        name
        for name in members
        if name[0] != "_" and getattr_static(part, name, _ABSENT) is _ABSENT
    ]
    if lacks:
        raise _refuse_missing(node, key, lacks)
    checked: T = part
    return checked


def _refuse_missing(node: Node, key: str, members: Iterable[str]) -> ConfigError:
    lacks = f"missing {', '.join(members)}"
    return ConfigError(
        f"{key}._target_={node['_target_']}: not a {key}: {lacks}. See docs/OWN_CODE.md"
    )


def build(node: Mapping[str, Any], key: str, **built: Any) -> Any:
    """Call the `_target_` with the node's values, and with `built` objects. Nested nodes are built first.

    Raises:
        ConfigError: naming the key, the value and what was expected.
    """
    target, values = read_node(node, key, built)
    if lacks := getattr(target, "__abstractmethods__", ()):
        raise _refuse_missing(node, key, sorted(lacks))
    return target(**values, **built)


def read_node(
    node: Mapping[str, Any], key: str, others: Collection[str] = ()
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Return the class of a node and the values of its fields, but for `others`. Raises as `build`."""
    target, types = check_node(node, key, others)
    values = {name: value for name, value in node.items() if name != "_target_"}
    return target, {
        name: check_value(f"{key}.{name}", value, types[name]) for name, value in values.items()
    }


@contextmanager
def errors_name(file: Path) -> Iterator[None]:
    """Put the name of a file before errors that do not have it."""
    try:
        yield
    except UsageError as error:
        if str(file) in str(error):
            raise
        raise ConfigError(f"{file}: {error}") from error


def check_node(
    node: Mapping[str, Any], key: str, built: Collection[str] = ()
) -> tuple[Callable[..., Json], Mapping[str, Any]]:
    """Return the class of a node and the types of its fields.

    built: fields that need no value.

    Raises:
        ConfigError: it cannot be imported, a value has no field, or a field without a default has no value.
    """
    path = str(node.get("_target_", ""))
    try:
        target, types = _import_node(node, key)
        _check_names(node, key, types.keys() - {*built})
        _check_missing(target, {*node, *built})
    except ConfigError as error:
        if location := find_target(key, path):
            raise ConfigError(f"{location}: {error}") from error
        raise
    return target, types


def _check_missing(target: Callable[..., Json], given: Collection[str]) -> None:
    """Raise a ConfigError if a field without a default has no value."""
    for name, parameter in inspect.signature(target).parameters.items():
        is_variable = parameter.kind in VARIABLE
        if parameter.default is parameter.empty and name not in given and not is_variable:
            owner = f"{target.__module__}.{target.__qualname__}"
            raise ConfigError(
                f"no value for {name!r}, a field of {owner}. Add the line {name}: VALUE"
            )


def check_keys(
    node: Mapping[str, Any],
    key: str,
    run_keys: Collection[str] = (),
    elsewhere: Mapping[str, str] | None = None,
) -> None:
    """Raise a ConfigError for a key that the class of a node, or of a node in it, does not have.

    run_keys: further keys of this location, which belong to the run.
    elsewhere: full keys of other locations by their last part, for a message.
    """
    _, types = _import_node(node, key)
    _check_names(node, key, {*run_keys, *types} - {*BUILT.get(key, ())}, elsewhere)
    for name, value in node.items():
        if isinstance(value, Mapping) and "_target_" in value:
            check_keys(value, f"{key}.{name}")


def _check_names(
    node: Mapping[str, Any],
    key: str,
    names: Collection[str],
    elsewhere: Mapping[str, str] | None = None,
) -> None:
    for name, value in node.items():
        if name not in names and name != "_target_":
            hint = f"{KEYS[name]}." if name in KEYS else nearest(name, names, f"{key}.")
            other = (elsewhere or {}).get(name)
            if other == name or (other and hint.startswith("Choose")):
                hint = f"Did you mean {other}={value}?"
            shown = hide_secret(name, value)
            raise ConfigError(f"{key}.{name}={shown}{UNKNOWN_KEY}. {hint}")


def changing_settings(node: Mapping[str, Any], key: str, *, files: bool = False) -> dict[str, Json]:
    """Return the values of a node that can change an answer, as the fields of its class declare.

    files: include those that change only the files of a run, such as its report.
    """
    fields = declared_fields(_import_node(node, key)[0])
    return {
        name: value
        for name, value in node.items()
        if name not in fields
        or (fields[name].can_change_files if files else fields[name].is_in_identity(value))
    }


def _import_node(
    node: Mapping[str, Any], key: str
) -> tuple[Callable[..., Json], Mapping[str, Any]]:
    """Return the class of a node and the types of its parameters."""
    path = str(node.get("_target_", ""))
    target = import_target(path, key)
    _refuse_plain_class(target)
    try:
        return target, _read_parameter_types(target)
    except (NameError, TypeError, ValueError) as error:
        # a type that only type checkers import, or not callable
        raise ConfigError(f"{key}._target_={path}: cannot be built: {error}") from error


def _refuse_plain_class(target: Callable[..., Json]) -> None:
    """Raise a ConfigError for a class with fields that is no dataclass, so that they are no settings."""
    if not isinstance(target, type) or "__init__" in vars(target):
        return
    annotations = get_annotations(target)
    fields = [name for name in annotations if "ClassVar" not in str(annotations[name])]
    if fields:
        raise ConfigError(
            f"{target.__module__}.{target.__qualname__} has the settings {', '.join(fields)}, but is no dataclass. "
            "Write @dataclass(frozen=True) before the class"
        )


@cache
def _read_parameter_types(target: Callable[..., Json]) -> Mapping[str, Any]:
    hints = get_type_hints(target, include_extras=True)
    parameters = inspect.signature(target).parameters
    return {
        name: hints.get(name, Any)
        for name, parameter in parameters.items()
        if parameter.kind not in VARIABLE
    }


def read_keys(kind: type[T], overrides: Iterable[str], prefix: str = "") -> T:
    """Build a dataclass from overrides with this prefix, and convert each value to the type of its field.

    Raises:
        ConfigError: a key is no field, or a value does not fit.
    """
    types = get_type_hints(kind, include_extras=True)
    values = {key.removeprefix(prefix): value for key, value in override_values(overrides).items()}
    if unknown := next((key for key in values if key not in types), None):
        raise ConfigError(
            f"{prefix}{unknown}={values[unknown]}: unknown key. {nearest(unknown, types, prefix)}"
        )
    return kind(
        **{key: check_value(f"{prefix}{key}", value, types[key]) for key, value in values.items()}
    )


def check_value(key: str, value: Any, expected: Any) -> Any:
    """Return the value of a key, converted to its type. Raise a ConfigError if it does not fit."""
    from pydantic import ValidationError

    if isinstance(value, Mapping) and "_target_" in value:
        return build(value, key)
    bare = expected.__origin__ if hasattr(expected, "__metadata__") else expected
    if getattr(bare, "_is_protocol", False):
        group = bare.__name__.lower()
        raise ConfigError(
            f"{key}={value}: no settings of a {group}. Choose a preset with {group}@{key}=NAME"
        )
    if dataclasses.is_dataclass(bare):
        raise ConfigError(f"{key}={value}: this key has settings. Set one of them: {key}.KEY=VALUE")
    try:
        result = _find_validator(expected).validate_python(value)
    except ValidationError as error:
        problem = error.errors()[0]
        if problem["type"] != "value_error":
            is_element = any(isinstance(part, int) for part in problem["loc"])
            hint = "" if is_element else _hint_at_value(key, value, bare)
            raise ConfigError(f"{key}={value}: {explain_problem(problem)}{hint}") from error
        inner = "".join(f".{part}" for part in problem["loc"] if isinstance(part, str))
        raise ConfigError(f"{key}{inner}={problem['input']}: {problem['ctx']['error']}") from error
    if isinstance(value, bool) and type(result) in (int, float):
        # pydantic reads true as 1
        kind = "an integer" if isinstance(result, int) else "a number"
        raise ConfigError(f"{key}={str(value).lower()}: must be {kind}")
    return result


def _hint_at_value(key: str, value: object, expected: Any) -> str:
    """Return a hint for a value of a wrong type: several values are a sweep, and null is often allowed."""
    if isinstance(value, list):
        values = ",".join(map(str, value))
        return f". Several values are a sweep, without brackets: kgqa run -m {key}={values}"
    if ends := re.fullmatch(r"(\d+)(?:\.\.|-|:)(\d+)", str(value)):
        return f". For a range of values: kgqa run -m '{key}=range({ends[1]},{int(ends[2]) + 1})'"
    return " or null" if type(None) in get_args(expected) else ""


def _find_validator(expected: Any) -> TypeAdapter[Any]:
    """Return the validator of a type."""
    try:
        # `int | float` equals `float | int` and converts a text differently, so the name is part of the key
        return _compile_validator(expected, str(expected))
    except TypeError:
        # metadata of a user's type that cannot be hashed
        return _compile_validator.__wrapped__(expected, "")


# the cells of a sweep have the same types, and pydantic needs 1 ms for each
@cache
def _compile_validator(expected: Any, _: str) -> TypeAdapter[Any]:
    from pydantic import ConfigDict, TypeAdapter

    config = ConfigDict(coerce_numbers_to_str=True, arbitrary_types_allowed=True)
    return TypeAdapter(expected, config=config)
