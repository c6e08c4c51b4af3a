"""Find the extras: each folder of `kgqa/extras` with a `register.py`. No other module is imported for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from operator import attrgetter
from typing import Any

from kgqa.errors import ConfigError
from kgqa.util.places import package_folder


@dataclass(frozen=True)
class Export:
    """A format of `kgqa report --format`. The function gets a finished run and an empty folder."""

    meaning: str
    function: str


@dataclass(frozen=True)
class Extra:
    """What an extra adds to kgqa. A function is named as `module:function` and imported when it is called.

    Args:
        commands: declarations of commands (`kgqa.cli.parsing.Command`), by the task that the help lists them under.
        functions: functions that the core calls, by the name that the core uses.
        exports: formats of runs, by their names.
    """

    commands: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    functions: Mapping[str, str] = field(default_factory=dict)
    exports: Mapping[str, Export] = field(default_factory=dict)


@cache
def list_extras() -> Mapping[str, Extra]:
    """Return the installed extras by name, in alphabetical order."""
    names = sorted(file.parent.name for file in package_folder().glob("extras/*/register.py"))
    return {name: import_module(f"kgqa.extras.{name}.register").EXTRA for name in names}


def list_exports() -> Mapping[str, Export]:
    """Return the formats of all extras by name."""
    return {
        name: export for extra in list_extras().values() for name, export in extra.exports.items()
    }


def load_function(path: str) -> Callable[..., Any]:
    """Import a function that is named as `module:function`."""
    module, _, name = path.partition(":")
    function: Callable[..., Any] = attrgetter(name)(import_module(module))
    return function


def load_registered(name: str) -> Callable[..., Any]:
    """Return the function that an extra registers under a name. Raises ConfigError: no installed extra has it."""
    for extra in list_extras().values():
        if name in extra.functions:
            return load_function(extra.functions[name])
    raise ConfigError(
        f"{name}: not in this installation. Install kgqa with all folders of kgqa/extras"
    )
