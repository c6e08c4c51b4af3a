"""Find components in the user's folder, then in kgqa itself.

The user's folder is the working directory, or the parent of `$KGQA_CONF`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from traceback import extract_tb
from types import ModuleType
from typing import Any

from kgqa.errors import ConfigError, nearest
from kgqa.util.opened_files import record_opened_files
from kgqa.util.places import user_folder

OTHERS = "Only these and kgqa's own are imported"
# of an ImportError
_NO_NAME = re.compile(
    r"cannot import name '(\w+)' from (?:partially initialized module )?'([\w.]+)'"
)
_PLACE = re.compile(r" \((?:/.*|unknown location)\)$")


@cache
def installed_components() -> Mapping[str, Mapping[str, str]]:
    """Return the components of installed packages, as MODULE:NAME, by group and name. Nothing is imported.

    A package declares them as entry points of the group `kgqa.components`, such as "method.my_agent" = "pkg:MyAgent".
    """
    components: dict[str, dict[str, str]] = {}
    for entry in entry_points(group="kgqa.components"):
        group, _, name = entry.name.rpartition(".")
        components.setdefault(group or "method", {})[name] = entry.value
    return components


def module_root(module: str) -> Path | None:
    """Return the folder in which the top package of a module is: the user's, or that of an installed component."""
    top = module.partition(".")[0]
    values = (value for names in installed_components().values() for value in names.values())
    if all(value.partition(":")[0].partition(".")[0] != top for value in values):
        return None
    spec = find_spec(top)
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin)
    return file.parents[1] if file.name == "__init__.py" else file.parent


def import_member(path: str) -> Any:
    """Return the class or function MODULE.NAME. Raise a ConfigError with the nearest name if there is none."""
    module, _, name = path.rpartition(".")
    code = import_code(module)
    if hasattr(code, name):
        return getattr(code, name)
    # not what it imports from others
    members = [
        each
        for each, value in vars(code).items()
        if f"{getattr(value, '__module__', '')}.".startswith(f"{module}.") and each[0] != "_"
    ]
    raise ConfigError(f"{module} has no {name!r}. {nearest(name, members)}")


def import_code(name: str) -> ModuleType:
    """Import a module of kgqa or of the user's folder. Raise a ConfigError if it cannot be imported."""
    top, folder = name.partition(".")[0], user_folder().absolute()
    is_ours = top == "kgqa" or (module_root(top) is not None and not (folder / top).exists())
    if not is_ours and PathFinder.find_spec(top, [str(folder)]) is None:
        hint = _find_near(top, _list_modules([str(folder)]))
        raise ConfigError(f"no module {top!r} in {folder}. {hint or OTHERS}")
    search_path = list(sys.path)
    if not is_ours:
        # behind installed modules: a folder `wandb/` must not hide the package
        sys.path.append(str(folder))
    try:
        with record_opened_files(folder):
            module = import_module(name)
    except SyntaxError as error:
        raise ConfigError(f"{error.filename}:{error.lineno}: syntax error: {error.msg}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        last = extract_tb(error.__traceback__)[-1]
        is_inside = "importlib" not in last.filename and Path(last.filename) != Path(__file__)
        where = f"{last.filename}:{last.lineno}: " if is_inside else ""
        what = f"{type(error).__name__}: {error}"
        hint = ""
        if isinstance(error, ImportError):
            # without the path of the module
            what = _PLACE.sub("", str(error))
            hint = _hint_at_import(error, folder)
        raise ConfigError(f"cannot be imported ({where}{what}){hint and f'. {hint}'}") from error
    finally:
        sys.path[:] = search_path
    paths = [module.__file__] if module.__file__ else list(module.__path__)
    if not is_ours and not any(folder.resolve() in Path(path).resolve().parents for path in paths):
        raise ConfigError(
            f"{module.__name__} is {module.__file__}, not the one in {folder}. Rename your module"
        )
    return module


def _hint_at_import(error: ImportError, folder: Path) -> str:
    """Return the module or the name of a module that an import probably means, or ""."""
    if isinstance(error, ModuleNotFoundError):
        parent, _, name = (error.name or "").rpartition(".")
        # an error in `import a.b.c` names the first part that is missing
        places = getattr(sys.modules.get(parent), "__path__", []) if parent else [str(folder)]
        hint = _find_near(name, _list_modules(places), f"{parent}." if parent else "")
        return hint or f"Install the package of {error.name}, or correct the name"
    # Python 3.12 has it in `error.name_from`
    if not (match := _NO_NAME.match(str(error))):
        return ""
    name, parent = match.groups()
    module = sys.modules.get(parent)
    names = [each for each in dir(module) if not each.startswith("_")]
    return _find_near(name, [*names, *_list_modules(getattr(module, "__path__", []))])


def _list_modules(folders: Iterable[str]) -> list[str]:
    # a test is no component
    names = (module.name for module in iter_modules(folders))
    return [name for name in names if not name.startswith("test_")]


def _find_near(name: str, choices: Iterable[str], prefix: str = "") -> str:
    """Return a hint at the nearest name, or "" if none is near."""
    hint = nearest(name, choices, prefix)
    return hint if hint.startswith("Did you mean") else ""
