"""The keys of each choice: values of its file over the defaults of its class, with meanings and sources.

A class declares its settings, see `kgqa.util.settings`. A file of conf/ names a class and what differs from its
defaults. Its key `origins` has the sources of these values, by kind: `origins: {paper: {beam: "Table 3"}}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import MISSING, dataclass, is_dataclass
from functools import lru_cache
from typing import Any, get_args

from kgqa.config.files import (
    Config,
    config_files,
    flatten,
    is_unnamed,
    list_defaults,
    load_file,
    merge_nodes,
    own_files,
)
from kgqa.config.targets import import_target
from kgqa.errors import ConfigError, DataError
from kgqa.types import Json
from kgqa.util.settings import DeclaredField, Setting, Source, declared_fields

ORIGINS = "origins"
# key of a file: what the paper has instead of a choice that no paper made
INSTEAD_OF = "instead_of"
# keys of a file that are no settings
FILE_KEYS = (ORIGINS, INSTEAD_OF)
# the class of a model's file that names none
MODEL = "kgqa.engines.weights.Model"
UNKNOWN = Setting("")
# the value of a key with keys of its own
NODE = object()


@dataclass(frozen=True)
class Key:
    """A key of a choice. value: of its file or its class, with references that are not resolved. NODE: it has keys."""

    # with the keys around it: few_shot.sample_size
    name: str
    value: Json
    meaning: str
    source: Source
    # without one of each tuple, such as "reranker=true", the key has no effect. The keys are of the same choice
    conditions: tuple[tuple[str, ...], ...] = ()

    @property
    def default(self) -> str:
        return "" if self.value is NODE else format_default(self.value)

    def describe(self) -> str:
        """Return meaning, default and source, for help."""
        default = f"(default: {self.default})" if self.default else ""
        return " ".join(
            filter(None, (self.meaning, default, self.source.text and f"[{self.source.text}]"))
        )


def format_default(value: Json) -> str:
    """Return a value as a command line has it."""
    if isinstance(value, str):
        return (
            value if value and value == value.strip() and "\n" not in value else json.dumps(value)
        )
    if isinstance(value, list):
        return f"[{', '.join(map(format_default, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {format_default(inner)}' for key, inner in value.items())}}}"
    return (
        "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )


# Nodes


def load_node(group: str, name: str) -> dict[str, Json]:
    """Return a choice with what its defaults name, and the defaults of its class.

    References are not resolved. A choice of another group of the run, such as the graph of method=kgp, is left out.
    """
    node = deepcopy(_load_node(group, name, own_files()))
    return {key: value for key, value in node.items() if key not in FILE_KEYS}


def load_origins(group: str, name: str) -> dict[str, Source]:
    """Return the sources of the values of a choice's file and of those that it extends, by key.

    Raises:
        DataError: a file has another form.
    """
    origins: Json = _load_node(group, name, own_files()).get(ORIGINS, {})
    return read_origins(origins, f"{group}={name}")


def read_origins(origins: Json, where: str) -> dict[str, Source]:
    """Turn `{kind: {key: text}}` into sources by key."""
    by_key: dict[str, dict[str, str]] = {}
    try:
        for kind, texts in origins.items():
            for key, text in texts.items():
                by_key.setdefault(key, {})[kind] = str(text)
        return {key: Source(**texts) for key, texts in by_key.items()}
    except (AttributeError, TypeError) as error:
        raise DataError(
            f"{where}: origins must be like {{paper: {{KEY: PLACE}}}} ({error})"
        ) from error


@lru_cache(maxsize=512)
def _load_node(group: str, name: str, files: object) -> dict[str, Json]:
    whole: dict[str, Json] = {}
    for choice in list_defaults(group, name):
        if choice.part:
            *outer, key = choice.part.split(".")
            inner: dict[str, Json] = whole
            for each in outer:
                inner = inner.setdefault(each, {})
            inner[key] = load_node(choice.group, choice.name)
        elif choice.group == group:
            whole = merge_nodes(whole, _load_node(group, choice.name, files))
    whole = merge_nodes(
        whole, {key: value for key, value in load_file(group, name).items() if key != "defaults"}
    )
    if group == "model":
        whole.setdefault("_target_", MODEL)
    if is_unnamed(group, name):
        whole["name"] = name
    return complete_node(whole, group) | {key: whole[key] for key in FILE_KEYS if key in whole}


def complete_node(node: Mapping[str, Json], key: str) -> dict[str, Json]:
    """Return a node with all keys of its class, in their order, and of the nodes in it. Further keys come last.

    A node that names no class that can be imported stays as it is: building it reports what is wrong.
    """
    try:
        fields = dict(declared_fields(import_target(str(node.get("_target_", "")), key)))
    except (ConfigError, NameError):
        fields = {}
    if key == "engine":
        # the choice of model= is its value
        fields.pop("model", None)
    complete: dict[str, Json] = {"_target_": node["_target_"]} if "_target_" in node else {}
    for name, field in fields.items():
        if name in node:
            complete[name] = _complete_value(node[name], field, f"{key}.{name}")
        elif field.default is not MISSING:
            complete[name] = to_plain(field.default)
    return complete | {
        name: value for name, value in node.items() if name not in (*complete, *FILE_KEYS)
    }


def _complete_value(value: Json, field: DeclaredField, key: str) -> Json:
    if not isinstance(value, Mapping):
        return value
    if "_target_" in value:
        return complete_node(value, key)
    if inner := _settings_class(field.type):
        defaults = {name: to_plain(each.default) for name, each in declared_fields(inner).items()}
        return {
            **{name: default for name, default in defaults.items() if default is not MISSING},
            **value,
        }
    return dict(value)


def _settings_class(kind: Any) -> Any:
    """Return the dataclass in a type such as `Annotated[About | None, …]`, or None."""
    if hasattr(kind, "__metadata__"):
        return _settings_class(kind.__origin__)
    return (
        kind
        if is_dataclass(kind)
        else next(filter(None, map(_settings_class, get_args(kind))), None)
    )


def to_plain(value: Any) -> Json:
    """Return a default as a configuration has it."""
    if isinstance(value, Mapping):
        return {key: to_plain(inner) for key, inner in value.items()}
    return [to_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def paper_choice(group: str, name: str) -> str:
    """Return what the paper has instead of a choice that no paper made, or "" if a paper made it."""
    return str(load_file(group, name).get(INSTEAD_OF, "")) if name in config_files(group) else ""


# Keys


def list_keys(group: str, name: str) -> tuple[Key, ...]:
    """Return the keys of a choice, in the order of its class."""
    if group == "experiment":
        origins = read_origins(load_file(group, name).get(ORIGINS, {}), f"{group}={name}")
        values = {
            key: value
            for key, value in load_file(group, name).items()
            if key not in ("defaults", *FILE_KEYS)
        }
        return tuple(
            Key(key, value, "", origins.get(key, Source()))
            for key, value in flatten(values).items()
        )
    return tuple(_list_node_keys(load_node(group, name), group, "", load_origins(group, name)))


def has_effect(key: Key, group: str, values: Mapping[str, Json]) -> bool:
    """Return whether a key can change an answer with these values, which have their group in their names."""
    return all(any(_holds(part, group, values) for part in either) for either in key.conditions)


def _holds(condition: str, group: str, values: Mapping[str, Json]) -> bool:
    name, _, allowed = condition.partition("=")
    path = f"{group}.{name}"
    return path not in values or format_default(values[path]) in allowed.split("|")


def _list_node_keys(
    node: Mapping[str, Json],
    key: str,
    prefix: str,
    origins: Mapping[str, Source],
    conditions: tuple[tuple[str, ...], ...] = (),
) -> Iterator[Key]:
    try:
        fields = declared_fields(import_target(str(node.get("_target_", "")), key))
    except (ConfigError, NameError):
        # the user's, reported when it is built
        fields = {}
    for name, value in node.items():
        if name == "_target_":
            continue
        field, path = fields.get(name), prefix + name
        setting = field.setting if field else UNKNOWN
        either = tuple(
            f"{prefix}{condition}" for condition in setting.only_if.split(" or ") if condition
        )
        needed = (*conditions, either) if either else conditions
        if isinstance(value, Mapping) and "_target_" in value:
            if setting.meaning:
                yield Key(path, NODE, setting.meaning, origins.get(path, setting), needed)
            yield from _list_node_keys(value, f"{key}.{name}", f"{path}.", origins, needed)
        else:
            is_default = (
                field is not None
                and field.default is not MISSING
                and to_plain(field.default) == value
            )
            has_reference = "${" in str(value)
            # the source of a default is not that of another value
            declared: Source = setting if is_default or has_reference else Source()
            yield Key(path, value, setting.meaning, origins.get(path, declared), needed)


def find_sources(config: Config) -> dict[str, str]:
    """Return the source of each value: that of its declaration or file, or who set another value, and both."""
    choices = {
        group: name
        for group, name in config["choices"].items()
        if name and name in config_files(group)
    }
    experiment = choices.pop("experiment", None)
    preset = {key.name: key for key in list_keys("experiment", experiment)} if experiment else {}
    values, sources = flatten(config), dict[str, str]()
    for group, name in choices.items():
        for key in list_keys(group, name):
            part = f"{group}.{key.name}"
            sources[part] = key.source.text
            for inner, original in (
                flatten({part: key.value}).items() if key.value is not NODE else ()
            ):
                if inner in values and values[inner] != original and "${" not in str(original):
                    sources[inner] = _describe_change(
                        key, original, values[inner], preset.get(inner), experiment
                    )
    return {part: source for part, source in sources.items() if source}


def _describe_change(
    key: Key, original: Json, value: Json, preset: Key | None, experiment: str | None
) -> str:
    who = "set on the command line"
    if preset is not None and preset.value == value:
        who = f"experiment={experiment}" + (
            f" ({preset.source.text})" if preset.source.text else ""
        )
    kind = "paper" if key.source.is_published else "default"
    return f"{who}; {kind}: {format_default(original)}" + (
        f" ({key.source.text})" if key.source.text else ""
    )
