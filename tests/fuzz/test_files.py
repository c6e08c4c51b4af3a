"""Fuzz files: question files, own YAML, run folders and the call cache with damaged bytes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgqa.util.fs import package_folder
from tests.fuzz.conftest import FAST, FUZZ, check_message, run_kgqa, temporary_folder

DEMO = package_folder() / "datasets/demo.jsonl"
# where to change a file (as a share of its length), what to write there, and how many bytes to remove
DAMAGE = st.tuples(
    st.floats(0, 1),
    st.one_of(st.binary(max_size=8), st.sampled_from([b"", b"\n", b'"', b"{", b"}", b"null", b"NaN", b"\xff", b"\0"])),
    st.integers(0, 40),
)
KEYS = ("method=no_context", "dataset=demo", "limit=3", *FAST, "output_dir=run")


def damage(data: bytes, change: tuple[float, bytes, int]) -> bytes:
    """Return `data` with some bytes replaced."""
    share, text, length = change
    start = int(share * len(data))
    return data[:start] + text + data[start + length :]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run and its call cache."""
    folder = tmp_path_factory.mktemp("finished")
    assert run_kgqa(folder, "run", *KEYS).code == 0
    return folder


@FUZZ
@given(change=DAMAGE)
def test_damaged_questions(change: tuple[float, bytes, int]) -> None:
    with temporary_folder() as folder:
        (folder / "q.jsonl").write_bytes(damage(DEMO.read_bytes()[:4000], change))
        check_message(run_kgqa(folder, "run", *KEYS[:1], "dataset=demo", "dataset.path=q.jsonl", "limit=2", *FAST))


@FUZZ
@given(change=DAMAGE)
def test_damaged_yaml(change: tuple[float, bytes, int]) -> None:
    with temporary_folder() as folder:
        own = folder / "conf/method/mine.yaml"
        own.parent.mkdir(parents=True)
        own.write_bytes(damage((package_folder().parent / "conf/method/no_context.yaml").read_bytes(), change))
        check_message(run_kgqa(folder, "run", "method=mine", "dataset=demo", "limit=1", *FAST, "dry_run=true"))


@FUZZ
@given(change=DAMAGE, name=st.sampled_from(["predictions.jsonl", "metrics.json", "trace.jsonl.zst", "manifest.json"]))
def test_damaged_run_folder(finished: Path, change: tuple[float, bytes, int], name: str) -> None:
    with temporary_folder() as folder:
        shutil.copytree(finished, folder, dirs_exist_ok=True)
        file = folder / "run" / name
        file.write_bytes(damage(file.read_bytes(), change))
        check_message(run_kgqa(folder, "show", "run"))
        check_message(run_kgqa(folder, "report", "run"))


@FUZZ
@given(change=DAMAGE)
def test_damaged_cache_never_changes_predictions(finished: Path, change: tuple[float, bytes, int]) -> None:
    with temporary_folder() as folder:
        shutil.copytree(finished, folder, dirs_exist_ok=True)
        expected = (folder / "run/predictions.jsonl").read_bytes()
        shutil.rmtree(folder / "run")
        for file in (folder / "outputs/.cache").glob("*.sqlite"):
            file.write_bytes(damage(file.read_bytes(), change))
        result = run_kgqa(folder, "run", *KEYS)
        check_message(result)
        if result.code == 0:
            assert (folder / "run/predictions.jsonl").read_bytes() == expected
