"""Import the classes that configurations name as `_target_`: those that kgqa's files name, and the user's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from kgqa.config.files import (
    SECOND,
    config_files,
    flatten,
    groups,
    is_own,
    list_own_classes,
    load_file,
    load_yaml,
)
from kgqa.errors import ConfigError, DataError, nearest
from kgqa.types import Json
from kgqa.util.places import conf_folders, package_conf
from kgqa.util.plugins import import_member

# groups with classes that no file has to name
UNNAMED_CLASSES = {
    "adapter": {"kgqa.artifacts.adapter.Adapter"},
    "model": {"kgqa.engines.weights.Model"},
}
_TARGET = re.compile(r"^(.*?)\b_target_: *([\w.]+)", re.MULTILINE)


def import_target(path: str, key: str) -> Callable[..., Json]:
    """Return the class that a `_target_` names. Nothing is called.

    Of kgqa only what conf/ names for the group can be built: its classes, and inside of them the readers of examples.

    Raises:
        ConfigError: naming `file:line` of the YAML, and what is wrong with the name or the module it names.
    """
    if not path:
        raise ConfigError(f"{key}: no _target_. Name the class there.")
    if path.startswith("kgqa."):
        _check_shipped(path, key, list_shipped_targets())
    if "." not in path:
        raise ConfigError(
            f"{key}._target_={path}: no module in this name. Write MODULE.CLASS. Only your modules "
            "and kgqa's are imported"
        )
    try:
        member: Callable[..., Json] = import_member(path)
    except ConfigError as error:
        raise ConfigError(f"{key}._target_={path}: {error}") from error
    if "." not in key and not isinstance(member, type):
        raise ConfigError(f"{key}._target_={path}: not a class. Name the class of a {key}.")
    return member


@cache
def list_shipped_targets() -> Mapping[str, set[str]]:
    """Return the classes that kgqa's own files name as `_target_`, by group. "" is inside of other nodes."""
    return {**_read_targets([package_conf()]), **UNNAMED_CLASSES}


def _read_targets(folders: Sequence[Path]) -> dict[str, set[str]]:
    named: dict[str, set[str]] = {}
    for file in (file for folder in folders for file in folder.glob("*/*.yaml")):
        for indent, target in _TARGET.findall(file.read_text(encoding="utf-8", errors="replace")):
            named.setdefault("" if indent else file.parent.name, set()).add(target)
    return named


def _list_own_targets() -> dict[str, set[str]]:
    """Return the user's classes that are found by the names of their files, by group."""
    return {
        group: {str(load_file(group, name).get("_target_")) for name in names}
        for group, names in list_own_classes().items()
    }


def _check_shipped(path: str, key: str, targets: Mapping[str, set[str]]) -> None:
    """Raise a ConfigError if no configuration file names this `_target_` for the group, or inside of a component."""
    group, inner, _ = key.partition(".")
    # a part of a retriever can be any retriever
    shipped = (
        set().union(*targets.values()) if inner else targets.get(SECOND.get(group, group), set())
    )
    if path not in shipped:
        hint = nearest(path, shipped) if shipped else "Choose a preset."
        raise ConfigError(f"{key}._target_={path}: not a class of a {group}. {hint}")


def load_run_config(folder: Path) -> dict[str, Json]:
    """Return the configuration of a run's folder, which can be another person's.

    Raises:
        DataError: it is not a run's configuration, or names a class that is not the user's own and that no file of
            conf/ names for its group.
    """
    file = folder / "config.yaml"
    config = load_yaml(file)
    if (
        not isinstance(config, Mapping)
        or not {"dataset", "model", "engine", "roles"} <= config.keys()
    ):
        raise DataError(f"{file}: not the configuration of a run. Run the run's command again")
    targets = {**_read_targets(conf_folders()), **UNNAMED_CLASSES}
    for group, own in _list_own_targets().items():
        targets[group] = targets.get(group, set()) | own
    try:
        for path, value in flatten(config).items():
            key, _, name = path.rpartition(".")
            if name == "_target_":
                _check_shipped(str(value), key, targets)
    except ConfigError as error:
        raise DataError(f"{file}: {error}") from error
    return dict(config)


def find_target(group: str, target: str) -> str:
    """Return the location of a `_target_`, as `FILE:LINE`, in the user's files of a group, or ""."""
    for name, file in config_files(group).items() if group in groups() and target else ():
        if is_own(group, name):
            for number, line in enumerate(
                file.read_text(encoding="utf-8", errors="replace").splitlines(), start=1
            ):
                if re.match(rf"_target_: *{re.escape(target)}\b", line):
                    return f"{file}:{number}"
    return ""
