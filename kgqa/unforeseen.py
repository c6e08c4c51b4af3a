"""An error that nobody foresaw: what a bug report needs goes into a file, and one line says where it lies."""

from __future__ import annotations

import os
import platform
import shlex
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kgqa.redaction import without_secrets
from kgqa.storage import home

FOLDER = "errors"  # below `storage.home()`
PACKAGES = ("kgqa", "hydra-core", "omegaconf", "pydantic", "rich", "numpy", "tantivy", "torch", "transformers", "vllm")
_LONGEST = 200  # characters of the error's own words in the line


def told(error: BaseException, arguments: Sequence[str]) -> str:
    """The line to show. Keys and passwords stand neither in it nor in the file, which its owner alone may read."""
    words = " ".join(without_secrets(error).split())
    named = f"{type(error).__name__}: {words[:_LONGEST]}{'…' if len(words) > _LONGEST else ''}".removesuffix(": ")
    file = _kept("\n".join(_report(error, arguments)))
    if file is None:
        return f"an error that kgqa did not foresee ({named}), and no file could be written that says more"
    return f"an error that kgqa did not foresee ({named}); {file} says where, please report it with that file"


def _report(error: BaseException, arguments: Sequence[str]) -> Iterator[str]:
    yield f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S %z}"
    yield without_secrets(shlex.join(["kgqa", *arguments]))
    yield f"Python {platform.python_version()} on {platform.platform()}"
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            yield f"{package} {version(package)}"
    yield ""
    yield without_secrets("".join(traceback.format_exception(error)))


def _kept(text: str) -> Path | None:
    """None where nothing can be written."""
    for folder in (home() / FOLDER, Path(tempfile.gettempdir())):
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            opened, name = tempfile.mkstemp(".txt", f"kgqa-{datetime.now():%Y%m%d-%H%M%S}-", folder)  # mode 0600
            with os.fdopen(opened, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
            return Path(name)
    return None
