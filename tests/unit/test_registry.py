"""Extras: what they register, and that the core works without them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kgqa.errors import ConfigError
from kgqa.util.places import package_folder
from kgqa.util.plugins import package_conf
from kgqa.util.registry import list_exports, list_extras, load_function, load_registered
from tests.e2e.conftest import QUICK

FUNCTIONS = [(name, path) for extra in list_extras().values() for name, path in extra.functions.items()]
EXPORTS = [(name, export.function) for name, export in list_exports().items()]


def test_every_folder_of_extras_registers() -> None:
    folders = {each.name for each in (package_folder() / "extras").iterdir() if (each / "__init__.py").is_file()}
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
    with pytest.raises(ConfigError, match=r"no_such: not in this installation\. Install kgqa with all folders"):
        load_registered("no_such")


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of kgqa without any extra."""
    place = tmp_path_factory.mktemp("core")
    shutil.copytree(package_folder(), place / "kgqa", ignore=shutil.ignore_patterns("extras", "__pycache__"))
    shutil.copytree(package_conf(), place / "kgqa" / "conf")
    yield place
    shutil.rmtree(place)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--help", "reproduce"),
        ("run method=trace --help", "method.beam"),
        (f"run method=trace dataset=demo limit=2 {' '.join(QUICK)}", "report"),
        ("run -m method=no_context,golden dataset=demo limit=2 engine=scripted", "cells: 2 done"),
        ("reproduce trace/table1 limit=2 dry_run=true engine=scripted model=smollm2_135m dataset=demo", "cells"),
    ],
    ids=["help", "help of run", "run", "sweep", "reproduce"],
)
def test_core_works_without_extras(core: Path, words: str, expected: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "kgqa", *words.split()], cwd=core, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert expected in ended.stdout
