"""What a run leaves may hold private documents: it is its owner's alone, unless they opened the folder to others."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import QUICK, Kgqa


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_new_folders_are_private_and_a_folder_that_its_owner_opened_stays_open(kgqa: Kgqa, tmp_path: Path) -> None:
    run = ("run", "method=trace", "dataset=demo", "limit=2", *QUICK)
    assert kgqa(*run, "output_dir=elsewhere").code == 0
    assert mode(Path("outputs")) == mode(Path("elsewhere")) == 0o700
    Path("outputs").chmod(0o755)
    assert kgqa(*run, "seed=1").code == 0
    kept = [path for path in Path("outputs").rglob("*") if mode(path) & 0o444 != 0o444]
    assert not kept
