"""A copy of kgqa without extras: all commands of the core work."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kgqa.util.places import package_conf, package_folder
from tests.e2e.conftest import QUICK


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of kgqa without any extra."""
    place = tmp_path_factory.mktemp("core")
    shutil.copytree(
        package_folder(), place / "kgqa", ignore=shutil.ignore_patterns("extras", "__pycache__")
    )
    shutil.copytree(package_conf(), place / "kgqa" / "conf")
    yield place
    shutil.rmtree(place)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--help", "reproduce"),
        ("run method=trace --help", "method.beam"),
        (f"run method=trace dataset=demo limit=2 {' '.join(QUICK)}", "report"),
        ("run -m method=no_context,golden dataset=demo limit=2 engine=scripted", "cells: 2 done"),
        (
            "reproduce trace/table1 limit=2 dry_run=true engine=scripted model=smollm2_135m dataset=demo",
            "cells",
        ),
    ],
    ids=["help", "help of run", "run", "sweep", "reproduce"],
)
def test_core_works_without_extras(core: Path, words: str, expected: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "kgqa", *words.split()],
        cwd=core,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert expected in ended.stdout
