"""A disk that is full at the first byte leaves empty files; the same command goes on from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import QUICK, Kgqa
from tests.e2e.sweeping import TWO

RUN = ("run", "method=trace", "limit=2", *QUICK)


@pytest.mark.parametrize("name", ["identity.json", "metrics.json", "predictions.jsonl"])
def test_a_run_whose_file_is_empty_is_mended_by_running_it_again(kgqa: Kgqa, name: str) -> None:
    folder = kgqa(*RUN).folder
    kept = {file: (folder / file).read_bytes() for file in (name, "predictions.jsonl")}
    (folder / name).write_bytes(b"")
    ran = kgqa(*RUN)
    assert (ran.code, ran.folder) == (0, folder), ran.err
    assert (folder / "predictions.jsonl").read_bytes() == kept["predictions.jsonl"]
    assert (folder / name).read_bytes()


def test_empty_files_of_triples_and_of_an_index_count_as_absent(kgqa: Kgqa) -> None:
    searching = ("run", "method=retrieve_read", "limit=2", *QUICK)
    assert (kgqa(*RUN).code, kgqa(*searching).code) == (0, 0)
    files = [*Path("outputs/kg").rglob("manifest.json"), *Path("outputs/index").rglob("manifest.json")]
    assert len(files) == 2
    files += Path("outputs/index").rglob("corpus.json")
    for file in files:
        file.write_bytes(b"")
    for command in (RUN, searching):
        ran = kgqa(*command, "run_name=again")  # a finished run reads none of them
        assert ran.code == 0, ran.err
    assert all(file.read_bytes() for file in files if "index" in file.parts)  # triples': when some are added


@pytest.mark.parametrize("name", ["sweep.json", "cells/000.json"])
def test_a_sweep_whose_file_is_empty_goes_on(kgqa: Kgqa, name: str) -> None:
    folder = kgqa(*TWO).folder
    kept = (folder / "cells/001.yaml").read_bytes()
    (folder / name).write_bytes(b"")
    ran = kgqa(*TWO)
    assert (ran.code, ran.folder) == (0, folder), ran.err
    assert (folder / "cells/001.yaml").read_bytes() == kept
    assert (folder / name).read_bytes()
