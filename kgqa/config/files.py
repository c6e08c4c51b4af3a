"""Find and read the YAML files of conf/: names by group, and what a file contains."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, lru_cache
from itertools import takewhile
from pathlib import Path

from kgqa.errors import ConfigError, DataError, nearest
from kgqa.types import Json
from kgqa.util.places import conf_folders, package_conf, package_folder, user_folder
from kgqa.util.plugins import installed_components, module_root
from kgqa.util.variables import SIMILARITY
from kgqa.util.yaml_files import parse_yaml, read_yaml_text

# a component: its `_target_` and the values it is built with
Node = Mapping[str, Json]
# of a run: nodes by group, `choices` by group, and keys of the run itself
Config = Mapping[str, Json]
# groups that choose among another one's names, a second time
SECOND = {"demonstrations_ranker": "ranker"}
# groups that may be null
OPTIONAL = (
    "ranker", "demonstrations_ranker", "reranker", "retriever", "graph", "collection", "judge", "tracker",
    "experiment", "collect", "train", "bootstrap",
)  # fmt: skip
NAMED = ("model", "dataset")  # groups with a key `name`
# the choice of model= for a model without a preset
UNNAMED = "unnamed_model"
# base classes of components that need no YAML, with their groups
BASES = {base: base.lower() for base in ("Method", "Dataset", "Retriever", "Ranker", "Engine")}


def groups() -> dict[str, list[str]]:
    """Return the names that can be chosen in each group, the user's own first: `{"method": ["mine", "bfs", …], …}`."""
    return {group: list(config_files(group)) for group in group_names()}


@cache
def group_names() -> tuple[str, ...]:
    """Return the names of the groups, without looking for the names in them."""
    names = {folder.name for folder in package_conf().iterdir() if folder.is_dir()} - {"reproduce"}
    return tuple(sorted(names | SECOND.keys()))


def find_misspelled_groups() -> dict[Path, Path]:
    """Return the folders with configurations in the user's conf/ that kgqa does not read, and the one that is meant.

    A folder with a name that is not close to a group is probably of another program.
    """
    names = {*group_names(), "metric"} - SECOND.keys()
    targets = {}
    for conf in conf_folders()[:-1]:
        for folder in sorted(conf.iterdir()):
            if folder.name not in names and any(folder.glob("*.y*ml")):
                near = get_close_matches(folder.name.casefold(), names, n=1, cutoff=SIMILARITY)
                if name := SECOND.get(folder.name) or next(iter(near), None):
                    targets[folder] = conf / name
    return targets


def config_files(group: str) -> dict[str, Path]:
    """Return the files of a group by name, in the order in which they are shown."""
    files: dict[str, Path] = {}
    for folder in conf_folders():
        place = folder / SECOND.get(group, group)
        for file in (
            _list_shipped(place) if folder == package_conf() else sorted(place.glob("*.yaml"))
        ):
            files.setdefault(file.stem, file)
    return {**list_own_classes().get(SECOND.get(group, group), {}), **files}


def list_own_classes() -> Mapping[str, Mapping[str, Path]]:
    """Return components that need no YAML, by group: walk_back.py with `class WalkBack(Method)`, and installed ones.

    Their fields have all settings. Nothing is imported here.
    """
    folder, classes = user_folder(), list_installed_files()
    if folder.resolve() == package_folder().parent.resolve():  # kgqa's own clone
        return classes
    # a named pipe would never end
    files = [
        file for file in sorted(folder.glob("*.py")) if file.is_file() and os.access(file, os.R_OK)
    ]
    own = _list_own_classes(tuple((file, file.stat().st_mtime_ns) for file in files))
    return {group: {**classes.get(group, {}), **own.get(group, {})} for group in {**classes, **own}}


@cache
def list_installed_files() -> Mapping[str, Mapping[str, Path]]:
    """Return the files of the components of installed packages, by group and name."""
    groups: dict[str, dict[str, Path]] = {}
    for group, names in installed_components().items():
        for name, value in names.items():
            module = value.partition(":")[0]
            path = (module_root(module) or Path()).joinpath(*module.split("."))
            file = next(
                (
                    each
                    for each in (path.with_suffix(".py"), path / "__init__.py")
                    if each.is_file()
                ),
                None,
            )
            if file is not None:
                groups.setdefault(group, {})[name] = file
    return groups


@lru_cache(maxsize=8)
def _list_own_classes(files: tuple[tuple[Path, int], ...]) -> dict[str, dict[str, Path]]:
    classes: dict[str, dict[str, Path]] = {}
    for file, _ in files:
        text = file.read_text(encoding="utf-8", errors="replace")
        if match := re.search(
            rf"(?m)^class {class_name(file.stem)}\((?:\w+\.)*({'|'.join(BASES)})\b", text
        ):
            classes.setdefault(BASES[match[1]], {})[file.stem] = file
    return classes


def class_name(module: str) -> str:
    """Return the name of the class that a module is named after: WalkBack for walk_back."""
    return module.title().replace("_", "")


@cache
def _list_shipped(folder: Path) -> Sequence[Path]:
    return sorted(folder.glob("*.yaml"))


# of groups that are named after what their choices do
_NOUNS = {"train": "recipe", "collect": "recipe", "bootstrap": "recipe", "kg": "knowledge graph"}


def config_file(group: str, name: str) -> Path:
    """Return the file of a choice. Of several, it is the first in the order of `places.conf_folders`.

    Raises:
        ConfigError: there is no such name.
    """
    files = config_files(group)
    if name not in files:
        raise ConfigError(f"{group}={name}: no such {name_group(group)}. {nearest(name, files)}")
    return files[name]


def name_group(group: str) -> str:
    """Return what the choices of a group are, for messages."""
    return _NOUNS.get(group, group)


def is_own(group: str, name: str) -> bool:
    """Return whether a choice is the user's."""
    file = config_files(group).get(name)
    return file is not None and file.parent.parent != package_conf()


def own_files() -> tuple[tuple[str, int, int], ...]:
    """Return a key that changes with the user's own configuration files."""
    files = [
        file for folder in conf_folders()[:-1] for file in sorted(folder.absolute().rglob("*.yaml"))
    ]
    files += [
        file.absolute() for classes in list_own_classes().values() for file in classes.values()
    ]
    return tuple((str(file), (status := file.stat()).st_ctime_ns, status.st_size) for file in files)


def load_file(group: str, name: str) -> Mapping[str, Json]:
    file = config_file(group, name)
    if file == list_installed_files().get(group, {}).get(name):
        return _installed_node(installed_components()[group][name])
    if file.suffix == ".py":
        return {"_target_": f"{name}.{class_name(name)}"}
    node = load_yaml(file, "Fix this file")
    if not isinstance(node, Mapping):
        raise DataError(f"{file}: no key has a value. Write KEY: VALUE, one per line")
    return node


def _installed_node(value: str) -> Mapping[str, Json]:
    """Return the node of an installed class, or of a function, which is an agent."""
    name = value.rpartition(":")[2]
    if name[:1].isupper():
        return {"_target_": value.replace(":", ".")}
    return {"_target_": "kgqa.methods.function.Function", "function": value}


def merge_nodes(base: Mapping[str, Json], own: Mapping[str, Json]) -> dict[str, Json]:
    """Return both mappings as one. Inner mappings are merged, other values are replaced."""
    merged = {**base, **own}
    for key in base.keys() & own.keys():
        if isinstance(base[key], Mapping) and isinstance(own[key], Mapping):
            merged[key] = merge_nodes(base[key], own[key])
    return merged


def is_unnamed(group: str, name: str) -> bool:
    """Return whether a file leaves out the key `name`, which is then the name of the file."""
    return group in NAMED and "name" not in load_file(group, name)


def load_yaml(file: Path, remedy: str = "Run the same command again") -> Json:
    """Return a configuration of kgqa, a user or a run. Raise a DataError if it cannot be read."""
    return (
        deepcopy(_parse_shipped(file))
        if file.is_relative_to(package_conf())
        else parse_yaml(file, remedy)
    )


@cache
def _parse_shipped(file: Path) -> Json:
    """Parse each of kgqa's own files once: a list of models or a table reads many of them."""
    return parse_yaml(file, "Reinstall kgqa")


def format_yaml(config: Config) -> str:
    from omegaconf import OmegaConf

    return OmegaConf.to_yaml(OmegaConf.create(dict(config)))


def flatten(config: Config, prefix: str = "") -> dict[str, Json]:
    """Return the values by dotted key, `{"method.beam": 5, …}`. Lists are values."""
    flat: dict[str, Json] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


@dataclass(frozen=True)
class GroupChoice:
    """A choice that comes with another one: graph=tfidf of method=kgp. `part` is "" for a group's own choice."""

    group: str
    part: str
    name: str


def describe_choice(group: str, name: str) -> str:
    """Return the opening comment of a choice's file."""
    file = config_file(group, name)
    if file.suffix == ".py":
        return describe_module(file)
    opening = takewhile(lambda line: line.startswith("#"), read_yaml_text(file).splitlines())
    return " ".join(line.lstrip("# ") for line in opening)


def describe_module(file: Path) -> str:
    """Return the first paragraph of a module's docstring, without importing it."""
    match = re.match(
        r'\s*"""(.*?)(?:\n\n|""")', file.read_text(encoding="utf-8", errors="replace"), re.DOTALL
    )
    return " ".join(match[1].split()) if match else ""


def list_choices(group: str, name: str) -> list[GroupChoice]:
    """Return the choices of other groups that come with this one, such as the graph of method=kgp."""
    return [choice for choice in list_defaults(group, name) if choice.group != group or choice.part]


def default_choices() -> dict[str, str]:
    """Return the default name of each group that has one."""
    listed = _read_defaults("", load_yaml(package_conf() / "config.yaml"))
    return {choice.group: choice.name for choice in listed if choice.name != "None"}


def list_defaults(group: str, name: str) -> list[GroupChoice]:
    """Return what a choice's file names under `defaults`. The group of `- dense` is the choice's own."""
    choices = _read_defaults(group, load_file(group, name))
    if GroupChoice(group, "", name) in choices:
        raise DataError(
            f"{config_file(group, name)}: a file names itself in its defaults. Remove it there."
        )
    return choices


def _read_defaults(own_group: str, node: Mapping[str, Json]) -> list[GroupChoice]:
    choices = []
    for entry in node.get("defaults", ()):
        if isinstance(entry, str) and entry != "_self_":
            choices.append(GroupChoice(own_group, "", entry))
        for key, name in entry.items() if isinstance(entry, Mapping) else ():
            group, _, place = key.split()[-1].lstrip("/").partition("@")
            part = place.removeprefix(f"_global_.{group}")
            choices.append(
                GroupChoice(part, "", str(name))
                if part in SECOND
                else GroupChoice(group, part, str(name))
            )
    return choices
