"""What papers trained and a cell needs: by name, with what makes it, and as the overrides that put one to use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from kgqa.artefacts.adapter import ADAPTER, CONFIG
from kgqa.errors import ConfigError, DataError, nearest
from kgqa.experiment.config.files import groups, load_yaml
from kgqa.places import shipped_conf

TRAINED = "trained."  # how one is given: trained.NAME=PATH
PLAIN = re.compile(r"[\w./+-]+")  # what may stand within `preset:path@engine`


class Artefact(BaseModel):
    """An entry of conf/reproduce/artefacts.yaml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    what: str
    base: str | None  # the preset of a language model; None: an encoder
    makes: tuple[str, ...]

    def made_by(self) -> str:
        """The commands, with what is not there yet."""
        return "; ".join(
            f"{command}{'' if _is_there(command) else ' (not yet part of kgqa)'}" for command in self.makes
        )


@cache
def artefacts() -> dict[str, Artefact]:
    """Raises DataError: the file is not of the form."""
    file = shipped_conf() / "reproduce" / "artefacts.yaml"
    try:
        return TypeAdapter(dict[str, Artefact]).validate_python(load_yaml(file, "reinstall kgqa"))
    except ValidationError as error:
        first = error.errors()[0]
        raise DataError(f"{file}: {'.'.join(map(str, first['loc']))}: {first['msg'].lower()}") from error


def artefact(name: str) -> Artefact:
    """By its name; of several patterns that match it the longest.

    Raises:
        ConfigError: none of that name.
    """
    matching = [pattern for pattern in artefacts() if fnmatchcase(name, pattern)]
    if not matching:
        raise ConfigError(f"{TRAINED}{name}: nothing of that name is trained; {nearest(name, artefacts())}")
    return artefacts()[max(matching, key=len)]


def in_place(trained: Iterable[tuple[str, str]], given: Mapping[str, str]) -> Iterator[str]:
    """The overrides that put what was given to use. `trained`: keys and the artefact each needs.

    Raises:
        ConfigError: what was given is not there, or is of a kind that the key does not take.
    """
    for key, name in trained:
        if name in given:
            yield f"{key}={_value(key, name, given[name])}"


def _value(key: str, name: str, given: str) -> str:
    base, path = artefact(name).base, Path(given).expanduser()
    role = key.startswith("roles.")
    if role and given.partition("@")[0] in groups()["model"]:
        return given
    if not path.exists():
        preset = ", nor a preset of conf/model" if role else ""
        raise ConfigError(
            f"{TRAINED}{name}={given}: no such file or folder{preset}; what makes it: kgqa reproduce --list"
        )
    adapts = any((folder / CONFIG).is_file() for folder in (path, path / ADAPTER))
    if adapts and not role:
        raise ConfigError(f"{TRAINED}{name}={given}: an adapter of a language model; give the folder of an encoder")
    place = str(path.resolve())
    if not PLAIN.fullmatch(place):
        raise ConfigError(
            f"{TRAINED}{name}={given}: a path of letters, digits and . _ / + - is taken; a link to it will do"
        )
    return f"{base}{'+' if adapts else ':'}{place}" if role else place


@cache
def _is_there(command: str) -> bool:
    return find_spec(f"kgqa.commands.{command.split()[1]}") is not None
