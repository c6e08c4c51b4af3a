"""Building an index: what survives a killed build, another process and a full disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from kgqa.calls import Search
from kgqa.errors import StorageError
from kgqa.retrieval.index import IndexFolder
from kgqa.types import Passage
from kgqa.util.fs import lock_file
from tests.retrieval.conftest import MADE_FROM, PASSAGES, retriever_of
from tests.retrieval.index_folders import QUERY, Stopping, silent, titles


def test_a_stopped_build_is_never_used_and_goes_on_from_the_stored_passages(folder: IndexFolder) -> None:
    stopping = Stopping(folder.retriever)
    folder = replace(folder, retriever=stopping)
    with pytest.raises(KeyboardInterrupt):
        folder.build(iter(PASSAGES), silent)
    assert not folder.finished()
    stopping.dies = False

    def unread() -> Iterator[Passage]:
        raise AssertionError("the corpus is stored already")
        yield

    folder.build(unread(), silent)
    with closing(folder.open()) as index:
        assert titles(index, Search(QUERY, 1)) == [["Ostrand railway"]]
    assert not (folder.path / "finder" / "half-built").exists()


def test_a_build_stopped_while_reading_starts_afresh(folder: IndexFolder) -> None:
    def cut_short() -> Iterator[Passage]:
        yield from PASSAGES[:5]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        folder.build(cut_short(), silent)
    manifest = folder.build(iter(PASSAGES), silent)
    assert manifest["corpus"]["count"] == len(PASSAGES)


def test_a_part_of_another_corpus_is_not_gone_on_from(folder: IndexFolder) -> None:
    stopping = Stopping(folder.retriever)
    with pytest.raises(KeyboardInterrupt):
        replace(folder, retriever=stopping).build(iter(PASSAGES[:5]), silent)
    other = replace(folder, made_from={"file": "another hash"})
    assert other.build(iter(PASSAGES), silent)["corpus"]["count"] == len(PASSAGES)


def test_a_finished_index_is_not_built_again(folder: IndexFolder) -> None:
    stopping = Stopping(folder.retriever)
    stopping.dies = False
    folder = replace(folder, retriever=stopping)
    first = folder.build(iter(PASSAGES), silent)
    assert folder.build(iter([]), silent) == first
    assert stopping.asked == 1


def test_a_build_waits_for_another_and_takes_its_index(folder: IndexFolder) -> None:
    told: list[str] = []
    with ThreadPoolExecutor() as pool:
        with lock_file(folder.path / ".lock"):
            waiting = pool.submit(folder.build, iter(PASSAGES), lambda stage, *_: told.append(stage))
            while not told:
                time.sleep(0.01)
            assert told == ["waiting for another kgqa process to index these"]
            assert not folder.finished()
        assert waiting.result()["corpus"]["count"] == len(PASSAGES)


def test_progress_names_the_stages_and_counts_all(folder: IndexFolder) -> None:
    told: list[tuple[str, int, int | None]] = []
    folder.build(iter(PASSAGES), lambda *each: told.append(each))
    for stage, total in (("reading", None), ("indexing", len(PASSAGES))):
        assert sum(count for name, count, _ in told if name == stage) == len(PASSAGES)
        assert {known for name, _, known in told if name == stage} == {total}


@pytest.mark.parametrize("limit", [1_000, 30_000], ids=["while reading", "while indexing"])
def test_a_full_disk_is_one_line_and_leaves_nothing_in_use(tmp_path: Path, limit: int) -> None:
    """A limit on file size is refused by the kernel like a full disk, and needs no privileges."""
    script = f"""
import resource, signal
from pathlib import Path
from kgqa.errors import StorageError
from kgqa.retrieval.index import IndexFolder
from tests.retrieval.conftest import MADE_FROM, retriever_of
from tests.retrieval.index_folders import silent
from kgqa.types import Passage
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
folder = IndexFolder(Path({str(tmp_path / "index")!r}), retriever_of("retriever=bm25"), MADE_FROM, "build")
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, resource.RLIM_INFINITY))
words = " ".join(f"word{{number}}" for number in range(20_000)) if {limit} > 10_000 else "a few words " * 1_000
try:
    folder.build((Passage.of(str(n), words[n::400]) for n in range(400)) , silent)
except StorageError as error:
    print(str(error).count(chr(10)), "make room" in str(error), folder.finished())
"""
    ran = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert ran.stdout == "0 True False\n", ran.stderr


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mount"), reason="needs root, to mount a small disk")
def test_a_disk_that_is_really_full_can_be_enlarged_and_built_on(tmp_path: Path) -> None:
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)], check=False)
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        folder = IndexFolder(tmp_path / "index", retriever_of("retriever=bm25"), MADE_FROM, "build")
        passages = [Passage.of(str(n), " ".join(f"word{n * m}" for m in range(40))) for n in range(3_000)]
        with pytest.raises(StorageError, match="make room"):
            folder.build(iter(passages), silent)
        assert not folder.finished()
        subprocess.run(["mount", "-o", "remount,size=50m", str(tmp_path)], check=True)
        assert folder.build(iter(passages), silent)["corpus"]["count"] == 3_000
    finally:
        subprocess.run(["umount", str(tmp_path)], check=False)
