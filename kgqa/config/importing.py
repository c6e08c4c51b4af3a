"""Import the class or function of a `_target_`: from kgqa, a declared package or the user's folder."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from traceback import extract_tb
from types import ModuleType

from kgqa.config.files import find_line
from kgqa.errors import ConfigError
from kgqa.types import Json
from kgqa.util.plugins import ENTRY_POINTS, packages, user_folder


def import_target(path: str, key: str) -> Callable[..., Json]:
    """Return the class or function that a `_target_` names.

    Raises:
        ConfigError: naming `file:line` of the YAML, and what is wrong with the name or the module it names.
    """
    if not path:
        raise ConfigError(f"{key}: no _target_, which names its class")
    module, _, name = str(path).rpartition(".")
    if not module:
        raise ConfigError(
            f"{key}._target_={path}: names no module as mine.Mine does; only these and kgqa's own are imported"
        )
    try:
        member: Callable[..., Json] = getattr(_module(module), name)
    except (_ImportRefusal, AttributeError) as error:
        where = find_line(path)
        raise ConfigError(f"{f'{where}: ' if where else ''}{key}._target_={path}: {error}") from error
    return member


def code_files(path: str) -> list[Path]:
    """Return the files of the module or package of a `_target_`; none for kgqa's own."""
    top = path.partition(".")[0]
    if top == "kgqa":
        return []
    declared = [folder for package, folder in packages().items() if package.partition(".")[0] == top]
    spec = PathFinder.find_spec(top, [str(user_folder())])
    folders = declared or list(map(Path, spec.submodule_search_locations or ()) if spec else ())
    if folders:
        return sorted(file for folder in folders for file in folder.rglob("*.py"))
    return [Path(spec.origin)] if spec and spec.origin else []


class _ImportRefusal(Exception):
    """Why there is no such module, for a person."""


def _module(name: str) -> ModuleType:
    top = name.partition(".")[0]
    if top in ("kgqa", *(package.partition(".")[0] for package in packages())):
        return _import(name)
    folder = user_folder().absolute()
    if PathFinder.find_spec(top, [str(folder)]) is None:
        raise _ImportRefusal(
            f"no module {top!r} in {folder}, and no package declares it as {ENTRY_POINTS}; only these and "
            "kgqa's own are imported"
        )
    with _search_path(folder):
        module = _import(name)
    if not _is_in(module, folder):
        raise _ImportRefusal(
            f"{module.__name__} is {module.__file__}, not the one in {folder}; give yours another name"
        )
    return module


def _import(name: str) -> ModuleType:
    """Raise _ImportRefusal: in one line, with the place in the file that is at fault if it is another one."""
    try:
        return import_module(name)
    except SyntaxError as error:
        raise _ImportRefusal(f"{error.filename}:{error.lineno}: {error.msg}") from error
    except Exception as error:
        last = extract_tb(error.__traceback__)[-1]
        importing = "importlib" in last.filename or Path(last.filename) == Path(__file__)
        where = "" if importing else f"{last.filename}:{last.lineno}: "
        raise _ImportRefusal(f"cannot be imported ({where}{_describe(error)})") from error


def _describe(error: Exception) -> str:
    return str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"


@contextmanager
def _search_path(folder: Path) -> Iterator[None]:
    """Make modules in `folder` importable, behind installed ones; a folder `wandb/` must not hide the package."""
    before = list(sys.path)
    sys.path.append(str(folder))
    try:
        yield
    finally:
        sys.path[:] = before


def _is_in(module: ModuleType, folder: Path) -> bool:
    places = [module.__file__] if module.__file__ else list(module.__path__)
    return any(folder.resolve() in Path(place).resolve().parents for place in places)
