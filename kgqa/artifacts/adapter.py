"""A LoRA adapter as PEFT saves it: a folder of small matrices that change a model's weights.

Training writes one to `outputs/trained/NAME/HASH/adapter/`, next to its manifest. Other adapters have no manifest.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import ConfigDict, PositiveFloat, PositiveInt

from kgqa.artifacts.schema import Artifact, read
from kgqa.errors import ConfigError, DataError
from kgqa.types import Json
from kgqa.util.fs import folder_sha256
from kgqa.util.jsonio import decode_json
from kgqa.util.validators import matches

CONFIG, MATRICES, GGUF = "adapter_config.json", "adapter_model.safetensors", "adapter.gguf"
# the GGUF file's key with the digest of its adapter
GGUF_SOURCE = "kgqa.adapter.sha256"
# in the folder of a trained model
ADAPTER, MANIFEST = "adapter", "manifest.json"
# PEFT's settings that engines follow differently or not at all
UNPLAIN = (
    "use_dora", "use_qalora", "lora_bias", "modules_to_save", "rank_pattern", "alpha_pattern",
    "trainable_token_indices", "target_parameters", "alora_invocation_tokens",
)  # fmt: skip

Sha256 = Annotated[
    str, matches(r"[0-9a-f]{64}", "must be 64 lower-case hexadecimal digits, or null")
]


class PeftConfig(Artifact):
    """The values of `adapter_config.json` that engines follow."""

    model_config = ConfigDict(extra="allow")

    r: PositiveInt
    lora_alpha: PositiveFloat
    use_rslora: bool = False
    bias: str = "none"
    peft_type: str | None = None


@dataclass(frozen=True)
class Adapter:
    """A file of conf/adapter/ has a key for each field.

    path: the folder that PEFT wrote, or that of a trained model. None: only a server has it, and `sha256` is set.
    sha256: the expected `digest`. None: not checked.
    base, base_sha256: the preset it was trained on and its weights' digest. None: as in the manifest, if there is one.
    served_name: its name at a server. None: `name`.
    """

    name: str
    path: str | None
    sha256: Sha256 | None = None
    base: str | None = None
    base_sha256: Sha256 | None = None
    served_name: str | None = None

    @property
    def folder(self) -> Path:
        """Return the folder with PEFT's two files. Raises ConfigError if they are missing."""
        if self.path is None:
            raise ConfigError(
                f"adapter {self.name}: its file in conf/adapter sets no path, so only a server has it"
            )
        path = Path(self.path).expanduser().absolute()
        folder = path / ADAPTER if (path / ADAPTER / CONFIG).is_file() else path
        for name in (CONFIG, MATRICES):
            if not (folder / name).is_file():
                raise ConfigError(
                    f"adapter {self.name}: no {name} in {folder}. Name the folder that PEFT saved."
                )
        return folder

    @property
    def gguf(self) -> Path:
        """Return the path of the GGUF file, which exists after an export for llama.cpp."""
        folder = self.folder
        return (folder.parent if self._manifest_file(folder).is_file() else folder) / GGUF

    @property
    def rank(self) -> int:
        return self._config.r

    @property
    def alpha(self) -> float:
        """Return alpha: weights change by B·A·alpha/rank (Hu et al., 2021) or rank-stabilized (Kalajdzievski, 2023)."""
        return self._config.lora_alpha * (sqrt(self.rank) if self._config.use_rslora else 1.0)

    def digest(self) -> str:
        """Return the hash of the two files. Raises DataError if it is not `sha256`."""
        if self.path is None and self.sha256 is not None:
            return self.sha256
        folder = self.folder
        actual = folder_sha256(folder, (CONFIG, MATRICES))
        if self.sha256 not in (None, actual):
            raise DataError(
                f"adapter {self.name}: sha256 of {folder} is {actual}, not {self.sha256}. Get it again."
            )
        return actual

    def trained_on(self) -> tuple[str | None, tuple[str, ...]]:
        """Return the base's preset and the digests of its weights, as the preset has them and as they were trained."""
        manifest: dict[str, Json] = {}
        if self.path is not None and (file := self._manifest_file(self.folder)).is_file():
            manifest = read(dict[str, Json], file, remedy="Train it again.")
        digests = (
            self.base_sha256 or manifest.get("base_sha256"),
            manifest.get("base_folder_sha256"),
        )
        return self.base or manifest.get("base"), tuple(str(digest) for digest in digests if digest)

    def check_plain(self) -> None:
        """Raise a ConfigError if the adapter has more than LoRA's matrices, which some engines ignore."""
        config = self._config
        beside = [key for key in UNPLAIN if (config.model_extra or {}).get(key)]
        beside += ["bias"] if config.bias != "none" else []
        if config.peft_type != "LORA" or beside:
            what = ", ".join(beside) or f"peft_type {config.peft_type}"
            raise ConfigError(
                f"adapter {self.name}: {what} in {self.folder / CONFIG} is more than plain LoRA. "
                "Merge it into its base and set model.path to the merged folder."
            )

    def matrices(self) -> dict[str, StoredTensor]:
        """Return the tensors by layer: "model.layers.0.mlp.up_proj.lora_A" of (rank, in), "….lora_B" of (out, rank)."""
        return {
            _plain_name(name): tensor
            for name, tensor in read_tensors(self.folder / MATRICES).items()
        }

    @property
    def _config(self) -> PeftConfig:
        return read(PeftConfig, self.folder / CONFIG, remedy="Get the adapter again.")

    @staticmethod
    def _manifest_file(folder: Path) -> Path:
        return folder.parent / MANIFEST if folder.name == ADAPTER else folder / MANIFEST


class StoredTensor(NamedTuple):
    """A tensor of a .safetensors file. `kind`: F32, BF16, … `start`, `end`: its bytes in the file."""

    kind: str
    shape: tuple[int, ...]
    start: int
    end: int


def read_tensors(file: Path) -> dict[str, StoredTensor]:
    """Read the tensors' names and offsets from the file's header. Raises DataError if it is damaged."""
    try:
        with file.open("rb") as source:
            (length,) = struct.unpack("<Q", source.read(8))
            size = file.stat().st_size
            header = decode_json(source.read(length if length <= size else 0))
        tensors = {}
        for name, entry in header.items():
            if name != "__metadata__":
                start, end = (8 + length + offset for offset in entry["data_offsets"])
                tensors[name] = StoredTensor(str(entry["dtype"]), tuple(entry["shape"]), start, end)
                if not 0 <= start <= end <= size:
                    raise ValueError(f"{name} ends at byte {end:,} of {size:,}")  # noqa: TRY301 - as a damaged header
    except (OSError, struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{file}: not readable as safetensors ({error}). Get it again.") from error
    return tensors


def _plain_name(name: str) -> str:
    """Remove PEFT's prefix and suffix from a module's name."""
    return name.removeprefix("base_model.model.").removesuffix(".weight").removesuffix(".default")
