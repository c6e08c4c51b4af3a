"""Find and read the YAML files of conf/."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from kgqa.errors import ConfigError, DataError, nearest
from kgqa.types import Json
from kgqa.util.plugins import conf_folders, package_conf

Node = Mapping[str, Json]  # a component: its `_target_` and the values it is built with
# groups that choose among another one's names, a second time
SECOND = {"demonstrations_ranker": "ranker"}
Config = Mapping[str, Json]  # of a run: nodes by group, `choices` by group, and keys of the run itself


ConfState = tuple[tuple[str, int, int], ...]


def conf_state() -> ConfState:
    """Return a key that changes with the user's own configuration files. kgqa's own do not change in a process."""
    state = []
    for folder in conf_folders()[:-1]:
        for file in sorted(folder.absolute().rglob("*.yaml")):
            status = file.stat()
            state.append((str(file), status.st_ctime_ns, status.st_size))
    return tuple(state)


def groups() -> dict[str, list[str]]:
    """Return the names that can be chosen in each group, the user's own first: `{"method": ["mine", "bfs", …], …}`."""
    names = {folder.name for folder in package_conf().iterdir() if folder.is_dir()} - {"reproduce"}
    folders, state = conf_folders(), conf_state()
    return {group: list(_scan(group, folders, state)) for group in sorted(names | SECOND.keys())}


def config_file(group: str, name: str) -> Path:
    """Return the file of a choice; of several, the first in the order of `plugins.conf_folders`.

    Raises:
        ConfigError: there is none of that name.
    """
    files = config_files(group)
    if name not in files:
        raise ConfigError(f"{group}={name}: no such {group}; {nearest(name, files)}")
    return files[name]


def is_own(group: str, name: str) -> bool:
    """Return whether a choice is the user's or another package's."""
    file = config_files(group).get(name)
    return file is not None and file.parent.parent != package_conf()


def load_node(group: str, name: str) -> dict[str, Json]:
    """Return a choice as it is in its file, without defaults and with unresolved references."""
    read = load_yaml(config_file(group, name), "correct it")
    if not isinstance(read, Mapping):
        raise DataError(f"{config_file(group, name)}: not a mapping of keys to values")
    return dict(read)


def find_line(text: str) -> str:
    """Return `file:line` in conf/ where this text is a value, or ""."""
    for file in (file for folder in conf_folders() for file in sorted(folder.rglob("*.yaml"))):
        for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
            if text in line.partition("#")[0].replace('"', " ").replace("'", " ").split():
                return f"{file}:{number}"
    return ""


def load_yaml(file: Path, remedy: str = "run the same command again") -> Json:
    """Return a configuration of a user or a run; raise a DataError if it cannot be read."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        return OmegaConf.to_container(OmegaConf.load(file))
    except (OSError, ValueError, RecursionError, YAMLError, OmegaConfBaseException) as error:
        raise DataError(f"{file}: not readable ({error}); {remedy}") from error


def format_yaml(config: Config) -> str:
    from omegaconf import OmegaConf

    return OmegaConf.to_yaml(OmegaConf.create(dict(config)))


def flatten(config: Config, prefix: str = "") -> dict[str, Json]:
    """Return the values by dotted key, `{"method.beam": 5, …}`; lists are values."""
    flat: dict[str, Json] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def config_files(group: str) -> dict[str, Path]:
    """Return the files of a group by name, in the order in which they are shown."""
    return dict(_scan(group, conf_folders(), conf_state()))


@lru_cache(maxsize=128)
def _scan(group: str, folders: tuple[Path, ...], _state: ConfState) -> dict[str, Path]:
    """Return a group's files by name. `_state` is only part of the cache key."""
    files: dict[str, Path] = {}
    for folder in folders:
        for file in sorted((folder / SECOND.get(group, group)).glob("*.yaml")):
            files.setdefault(file.stem, file)
    return files
