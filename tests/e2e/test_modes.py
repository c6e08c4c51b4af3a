"""What a run leaves may hold private documents: it is its owner's alone, unless they opened the folder to others."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from kgqa.util.fs import create_private, ensure_dir, lock_file, replace_file
from tests.e2e.conftest import QUICK, Kgqa


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def modes(root: Path) -> dict[str, str]:
    """Of all below the folder and itself, those that are not as a private folder's are."""
    found = [root, *root.rglob("*")]
    return {str(path): oct(mode(path)) for path in found if mode(path) != (0o700 if path.is_dir() else 0o600)}


def work(kgqa: Kgqa) -> list[Path]:
    """Something of every kind: runs, triples, an index, a sweep, an export, an evaluation, the cache, logs."""
    ran = [
        kgqa("run", "method=trace", "dataset=demo", "limit=2", *QUICK),
        kgqa("run", "method=retrieve_read", "dataset=demo", "retriever=bm25", "limit=2", *QUICK),
        kgqa("run", "-m", "method=golden,no_context", "dataset=demo", "limit=1", *QUICK),
        kgqa("kg", "build", "dataset=demo", "limit=2", *QUICK),
        kgqa("kg", "build", "--corpus", "dataset=demo", "limit=3", *QUICK),
    ]
    assert [each.code for each in ran] == [0] * len(ran), [each.err for each in ran]
    exported = kgqa("report", str(ran[0].folder), "--format", "jsonl", "--out", "outputs/exported")
    evaluated = kgqa("evaluate", str(ran[0].folder), "out=elsewhere")
    assert (exported.code, evaluated.code) == (0, 0), exported.err + evaluated.err
    return [Path("outputs"), Path("elsewhere")]


def test_all_that_kgqa_writes_is_its_owners_alone(kgqa: Kgqa) -> None:
    places = work(kgqa)
    assert [modes(place) for place in places] == [{}, {}]
    names = {path.name for path in Path("outputs").rglob("*")}
    assert {
        "calls.sqlite",
        "extractions.sqlite",
        "predictions.jsonl",
        "passages.jsonl",
        "log.jsonl",
        "sweep.json",
    } <= names


def test_a_folder_that_its_owner_opened_to_a_group_is_followed(kgqa: Kgqa) -> None:
    Path("outputs").mkdir()
    Path("outputs").chmod(0o2775)
    work(kgqa)
    odd = {
        str(path): oct(mode(path))
        for path in Path("outputs").rglob("*")
        if mode(path) != (0o2775 if path.is_dir() else 0o664)
    }
    assert odd == {}
    assert modes(Path("elsewhere")) == {}


def test_the_cache_is_private_wherever_it_is_put(kgqa: Kgqa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGQA_CACHE", str(tmp_path / "far" / "cache"))
    kgqa("run", "method=golden", "dataset=demo", "limit=1", *QUICK)
    assert modes(tmp_path / "far") == {}


def test_a_file_is_as_open_as_its_folder_and_never_everybodys_to_write(tmp_path: Path) -> None:
    for folder_mode, file_mode in ((0o700, 0o600), (0o750, 0o640), (0o755, 0o644), (0o777, 0o664), (0o1777, 0o600)):
        folder = ensure_dir(tmp_path / oct(folder_mode))
        assert mode(folder) == 0o700
        folder.chmod(folder_mode)
        replace_file(folder / "replaced", "x")
        with lock_file(folder / "lock"):
            assert mode(create_private(folder / "begun")) == file_mode
            assert mode(folder / "lock") == file_mode
        assert mode(folder / "replaced") == file_mode
        assert mode(ensure_dir(folder / "own" / "further")) == 0o700  # it is none of kgqa's places


def test_a_mode_that_its_owner_gave_a_file_stays(tmp_path: Path) -> None:
    file = create_private(ensure_dir(tmp_path / "folder") / "file")
    file.chmod(0o640)
    assert mode(create_private(file)) == 0o640
