"""The YAML files of conf/: which names there are, where each one's file lies, and what stands in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kgqa.errors import ConfigError, DataError, nearest
from kgqa.places import conf_folders, shipped_conf
from kgqa.types import Json

Node = Mapping[str, Json]  # a component: its `_target_` and the values it is built with
# groups that choose among another one's names, a second time
SECOND = {"demonstrations_ranker": "ranker"}
Config = Mapping[str, Json]  # of a run: nodes by group, `choices` by group, and keys of the run itself


def groups() -> dict[str, list[str]]:
    """The names that can be chosen in each group, own ones first: `{"method": ["mine", "all_documents", …], …}`."""
    names = {folder.name for folder in shipped_conf().iterdir() if folder.is_dir()} - {"reproduce"}
    folders = conf_folders()
    return {group: list(_files(group, folders)) for group in sorted(names | SECOND.keys())}


def config_file(group: str, name: str) -> Path:
    """Where a choice stands; of several files the first in the order of `places.conf_folders`.

    Raises:
        ConfigError: there is none of that name.
    """
    files = config_files(group)
    if name not in files:
        raise ConfigError(f"{group}={name}: no such {group}; {nearest(name, files)}")
    return files[name]


def is_own(group: str, name: str) -> bool:
    """Whether a choice is another one than kgqa's own."""
    file = config_files(group).get(name)
    return file is not None and file.parent.parent != shipped_conf()


def node(group: str, name: str) -> dict[str, Json]:
    """A choice as its file has it: neither defaults nor references to other keys are resolved."""
    read = load_yaml(config_file(group, name), "correct it")
    if not isinstance(read, Mapping):
        raise DataError(f"{config_file(group, name)}: not a mapping of keys to values")
    return dict(read)


def line_of(text: str) -> str:
    """`file:line` in conf/ where this text stands as a value; "" where it does not."""
    for file in (file for folder in conf_folders() for file in sorted(folder.rglob("*.yaml"))):
        for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
            if text in line.partition("#")[0].replace('"', " ").replace("'", " ").split():
                return f"{file}:{number}"
    return ""


def load_yaml(file: Path, remedy: str = "run the same command again") -> Json:
    """A configuration, as someone wrote it or a run has kept it. Raises DataError: not readable."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        return OmegaConf.to_container(OmegaConf.load(file))
    except (OSError, ValueError, RecursionError, YAMLError, OmegaConfBaseException) as error:
        raise DataError(f"{file}: not readable ({error}); {remedy}") from error


def yaml_text(config: Config) -> str:
    from omegaconf import OmegaConf

    return OmegaConf.to_yaml(OmegaConf.create(dict(config)))


def flatten(config: Config, prefix: str = "") -> dict[str, Json]:
    """`{"method.beam": 5, …}`; lists are leaves."""
    flat: dict[str, Json] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def config_files(group: str) -> dict[str, Path]:
    """By name, in the order in which they are shown."""
    return _files(group, conf_folders())


def _files(group: str, folders: Sequence[Path]) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for folder in folders:
        found = sorted((folder / SECOND.get(group, group)).glob("*.yaml"))
        files |= {file.stem: file for file in found if file.stem not in files}
    return files
