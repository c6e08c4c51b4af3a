"""List the trained models that cells need, with the commands that make them and the overrides that use them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from kgqa.artifacts.adapter import ADAPTER, CONFIG
from kgqa.artifacts.manifest import MANIFEST
from kgqa.artifacts.trained import Trained
from kgqa.config.files import groups, load_yaml
from kgqa.errors import ConfigError, DataError, nearest
from kgqa.training.trainers import BiEncoderTraining, Seq2SeqTraining
from kgqa.util.plugins import package_conf

TRAINED = "trained."  # how one is given: trained.NAME=PATH
PLAIN = re.compile(r"[\w./+-]+")  # what may stand within `preset:path@engine`


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Asks(_Strict):
    """So often, with so many tokens each time."""

    model: str
    times: int
    read: int
    written: int


class Learns(_Strict):
    """`recipe`: where the command names none. `parameters`: of an encoder, in billions."""

    examples: int
    tokens: int  # of one, on average
    longest: int
    questions: int = 0
    times: int = 1
    recipe: str = ""
    parameters: float | None = None


class Step(_Strict):
    command: str
    asks: Asks | None = None
    learns: Learns | None = None


class Artefact(_Strict):
    """`base`: the preset of a language model; None: an encoder. `needs`: artefacts that are made before it."""

    what: str
    base: str | None
    needs: tuple[str, ...] = ()
    makes: tuple[Step, ...]

    def of(self, values: Mapping[str, str]) -> Artefact:
        """Return the artifact with the values of its name inserted into its commands."""
        made = [step.model_copy(update={"command": step.command.format_map(values)}) for step in self.makes]
        return self.model_copy(update={"makes": tuple(made)})


class Answering(_Strict):
    active: float  # billions of parameters that a token passes
    written: float  # tokens a second
    gigabytes: int


class Gpu(_Strict):
    """A GPU, for estimates of hours and money."""

    name: str
    usd_an_hour: float
    answering: Mapping[str, Answering]


class _File(_Strict):
    gpu: Gpu
    artefacts: Mapping[str, Artefact]


def artefacts() -> Mapping[str, Artefact]:
    """Return the artifacts by name, or by the pattern of names. Raises DataError as `gpu` does."""
    return _file().artefacts


def gpu() -> Gpu:
    """Raise DataError: conf/reproduce/artefacts.yaml is not of the form."""
    return _file().gpu


def artefact(name: str) -> Artefact:
    """
    Raises:
        ConfigError: none of that name.
    """
    for form, described in artefacts().items():
        if fitting := _form(form).fullmatch(name):
            return described.of(fitting.groupdict())
    raise ConfigError(f"{TRAINED}{name}: nothing of that name is trained; {nearest(name, artefacts())}")


def in_place(trained: Iterable[tuple[str, str]], given: Mapping[str, str]) -> Iterator[str]:
    """Yield the overrides that put what was given to use. `trained`: keys and the artefact each needs.

    Raises:
        ConfigError: what was given is not there, or is of a kind that the key does not take.
        DataError: its manifest is damaged.
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
    if (path / MANIFEST).is_file() and not (path / CONFIG).is_file():  # of kgqa train
        base = Trained.read(path).base
        path = next(
            (path / part for part in (Seq2SeqTraining.output, BiEncoderTraining.output) if (path / part).is_dir()), path
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
def _form(text: str) -> re.Pattern[str]:
    """Return a form of names: {x} stands for letters and digits."""
    return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>\\w+)", re.escape(text)))


@cache
def _file() -> _File:
    file = package_conf() / "reproduce" / "artefacts.yaml"
    try:
        return TypeAdapter(_File).validate_python(load_yaml(file, "reinstall kgqa"))
    except ValidationError as error:
        first = error.errors()[0]
        raise DataError(f"{file}: {'.'.join(map(str, first['loc']))}: {first['msg'].lower()}") from error
