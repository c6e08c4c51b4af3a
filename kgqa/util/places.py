"""Name the folders of the package, of its output and of its caches."""

from __future__ import annotations

import os
from pathlib import Path


def package_folder() -> Path:
    """Return the folder of the package itself."""
    return Path(__file__).parents[1]


def outputs() -> Path:
    """Return the folder of runs, triples and the call cache: `outputs/` of the working directory."""
    return Path("outputs")


def training_folder() -> Path:
    """Return `KGQA_TRAINED`, else the folder of trained models in the outputs, with NAME/HASH/ for each."""
    return Path(os.environ.get("KGQA_TRAINED") or outputs() / "trained").expanduser()


def call_cache() -> Path:
    """Return `KGQA_CACHE`, else a folder of the outputs."""
    return Path(os.environ.get("KGQA_CACHE") or outputs() / ".cache")


def shared_replies() -> Path | None:
    """Return `KGQA_REPLIES`, a folder that several machines share, or None."""
    return Path(named).expanduser() if (named := os.environ.get("KGQA_REPLIES")) else None


def home() -> Path:
    """Return `KGQA_HOME`, else `kgqa` in the user's cache: weights, hashes, logs."""
    if named := os.environ.get("KGQA_HOME"):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "kgqa"
