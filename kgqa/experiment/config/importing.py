"""The class or function that a `_target_` names: kgqa's, a declared package's, or one of the person's own folder.

Nothing else is imported: a configuration is data, not a way to run whatever happens to be installed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from traceback import extract_tb
from types import ModuleType

from kgqa.errors import ConfigError
from kgqa.experiment.config.files import line_of
from kgqa.places import ENTRY_POINTS, own_folder, packages
from kgqa.types import Json


def target(path: str, key: str) -> Callable[..., Json]:
    """
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
    except (_Refused, AttributeError) as error:
        where = line_of(path)
        raise ConfigError(f"{f'{where}: ' if where else ''}{key}._target_={path}: {error}") from error
    return member


def code_files(path: str) -> list[Path]:
    """The files of the module, or package of modules, that a `_target_` names outside kgqa; none for kgqa's."""
    top = path.partition(".")[0]
    if top == "kgqa":
        return []
    declared = [folder for package, folder in packages().items() if package.partition(".")[0] == top]
    spec = PathFinder.find_spec(top, [str(own_folder())])
    folders = declared or list(map(Path, spec.submodule_search_locations or ()) if spec else ())
    if folders:
        return sorted(file for folder in folders for file in folder.rglob("*.py"))
    return [Path(spec.origin)] if spec and spec.origin else []


class _Refused(Exception):
    """Why there is no such module, for a person."""


def _module(name: str) -> ModuleType:
    top = name.partition(".")[0]
    if top in ("kgqa", *(package.partition(".")[0] for package in packages())):
        return _imported(name)
    folder = own_folder().absolute()
    if PathFinder.find_spec(top, [str(folder)]) is None:
        raise _Refused(
            f"no module {top!r} in {folder}, and no package declares it as {ENTRY_POINTS}; only these and "
            "kgqa's own are imported"
        )
    with _searched(folder):
        module = _imported(name)
    if not _lies_in(module, folder):
        raise _Refused(f"{module.__name__} is {module.__file__}, not the one in {folder}; give yours another name")
    return module


def _imported(name: str) -> ModuleType:
    """Raises _Refused: in one line, with the place in the file that is at fault if it is another one."""
    try:
        return import_module(name)
    except SyntaxError as error:
        raise _Refused(f"{error.filename}:{error.lineno}: {error.msg}") from error
    except Exception as error:
        last = extract_tb(error.__traceback__)[-1]
        importing = "importlib" in last.filename or Path(last.filename) == Path(__file__)
        where = "" if importing else f"{last.filename}:{last.lineno}: "
        raise _Refused(f"cannot be imported ({where}{_said(error)})") from error


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"


@contextmanager
def _searched(folder: Path) -> Iterator[None]:
    """Modules in `folder` are found, after installed ones; only here, lest a folder `wandb/` of a working directory be
    taken for the package."""
    before = list(sys.path)
    sys.path.append(str(folder))
    try:
        yield
    finally:
        sys.path[:] = before


def _lies_in(module: ModuleType, folder: Path) -> bool:
    places = [module.__file__] if module.__file__ else list(module.__path__)
    return any(folder.resolve() in Path(place).resolve().parents for place in places)
