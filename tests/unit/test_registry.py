"""Extras: what they register. `tests/e2e/test_core_alone.py` runs the core without them."""

from __future__ import annotations

import pytest

from kgqa.errors import ConfigError
from kgqa.util.places import package_folder
from kgqa.util.registry import list_exports, list_extras, load_function, load_registered

FUNCTIONS = [
    (name, path) for extra in list_extras().values() for name, path in extra.functions.items()
]
EXPORTS = [(name, export.function) for name, export in list_exports().items()]


def test_every_folder_of_extras_registers() -> None:
    folders = {
        each.name
        for each in (package_folder() / "extras").iterdir()
        if (each / "__init__.py").is_file()
    }
    assert folders == set(list_extras())


@pytest.mark.parametrize(
    "path", [path for _, path in FUNCTIONS + EXPORTS], ids=[name for name, _ in FUNCTIONS + EXPORTS]
)
def test_registered_function_can_be_imported(path: str) -> None:
    assert callable(load_function(path))


@pytest.mark.parametrize(("name", "path"), FUNCTIONS, ids=[name for name, _ in FUNCTIONS])
def test_core_finds_a_function_by_its_name(name: str, path: str) -> None:
    assert load_registered(name) == load_function(path)


def test_missing_extra_is_one_line() -> None:
    with pytest.raises(
        ConfigError, match=r"no_such: not in this installation\. Install kgqa with all folders"
    ):
        load_registered("no_such")
