"""Record which files the modules of the user's folder read while they are imported.

A module can compose the name of a file, so that no string of its code names it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType

# by name of the module
_FILES: dict[str, set[Path]] = {}
# the user's folder while one of its modules is imported
_folders: list[Path] = []


@contextmanager
def record_opened_files(folder: Path) -> Iterator[None]:
    """Record the files of a folder that its modules open in this block."""
    _add_hook()
    _folders.append(folder.absolute())
    try:
        yield
    finally:
        _folders.pop()


def list_opened_files(module: str) -> set[Path]:
    """Return the files that a module opened while it was imported."""
    return _FILES.get(module, set())


@cache
def _add_hook() -> None:
    # python has no way to remove it, so it is added for the first module of a user only
    sys.addaudithook(_record)


def _record(event: str, values: tuple[object, ...]) -> None:
    if event != "open" or not _folders:
        return
    name = values[0]
    if not isinstance(name, str | os.PathLike):
        return
    folder = _folders[-1]
    file = Path(os.path.abspath(name))
    if folder in file.parents and not _is_code(file.relative_to(folder)):
        # 1 is the caller of this function
        module = _find_module(sys._getframe(1), folder)
        _FILES.setdefault(module, set()).add(file)


def _is_code(file: Path) -> bool:
    """Return whether a file is code, or in a hidden folder such as .venv."""
    return file.suffix in (".py", ".pyc", ".so") or any(
        part.startswith(".") for part in file.parts[:-1]
    )


def _find_module(frame: FrameType | None, folder: Path) -> str:
    """Return the name of the innermost module of a folder that is running."""
    while frame is not None:
        name, file = frame.f_globals.get("__name__"), frame.f_globals.get("__file__")
        if (
            isinstance(name, str)
            and isinstance(file, str)
            and folder in Path(file).absolute().parents
        ):
            return name
        frame = frame.f_back
    return ""
