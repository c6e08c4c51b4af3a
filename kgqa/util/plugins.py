"""Find components in the user's folder, in installed packages, and in kgqa itself, in this order.

The user's folder is the working directory, or the parent of `$KGQA_CONF`. Packages declare the entry point group
`kgqa.components`, see docs/OWN_CODE.md.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from kgqa.errors import ConfigError
from kgqa.util.fs import package_folder

ENTRY_POINTS = "kgqa.components"


def conf_folders() -> tuple[Path, ...]:
    """Return the folders of configurations. The first one with a name wins; the last is kgqa's own."""
    named = (user_conf(), *(folder / "conf" for folder in packages().values()))
    ours = package_conf()
    return (*(folder for folder in named if folder.is_dir() and not folder.samefile(ours)), ours)


def prompt_folders() -> tuple[Path, ...]:
    """Return the folders of templates, in the same order."""
    return (
        user_folder() / "prompts",
        *(folder / "prompts" for folder in packages().values()),
        package_folder() / "prompts",
    )


@cache
def package_conf() -> Path:
    """Return `conf/` of the installed package or of the checkout."""
    packaged = package_folder() / "conf"
    return packaged if packaged.is_dir() else package_folder().parent / "conf"


def user_folder() -> Path:
    """Return the folder with the user's modules, prompts and conf/."""
    return user_conf().parent


@cache
def packages() -> dict[str, Path]:
    """Return the folders of packages that declare components, by import name. Raise a ConfigError if one is missing."""
    folders = {}
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        try:
            spec = find_spec(point.module)
        except ImportError:  # of the package that holds it
            spec = None
        if spec is None or not spec.submodule_search_locations:
            holder = point.dist.name if point.dist else "the package that declares it"
            raise ConfigError(
                f"{ENTRY_POINTS}: {point.name} = {point.value}: no such package. Reinstall {holder} or remove it"
            )
        folders[point.module] = Path(spec.submodule_search_locations[0])
    return folders


def user_conf() -> Path:
    """Return the user's conf/ as the user writes it. Raise a ConfigError if `KGQA_CONF` names no folder."""
    named = os.environ.get("KGQA_CONF")
    folder = Path(named or "conf").expanduser()
    if named and not folder.is_dir():
        raise ConfigError(f"KGQA_CONF={named}: no such folder. Name the folder with method/, dataset/, …")
    return folder
