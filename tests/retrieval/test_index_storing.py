"""Index folders: what is stored, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kgqa.calls import Search
from kgqa.errors import DataError
from kgqa.retrieval.index import IndexFolder
from kgqa.retrieval.passages import StoredPassages, store
from kgqa.types import Passage
from tests.retrieval.conftest import PASSAGES, retriever_of
from tests.retrieval.index_folders import QUERY, opened, silent, titles

# Storing


def test_a_stored_passage_comes_back_as_it_was(tmp_path: Path) -> None:
    passages = [
        Passage.of("Ostrand", "First. Second.", ("First.", " Second.")),
        Passage.of("", "no title\nand\u2028line ends\0"),
        Passage.of("Ωmega “quoted”", ""),
        Passage("an id of one's own", "T", "half \ud800 character"),
    ]
    corpus = store(iter(passages), tmp_path, lambda _: None)
    with closing(StoredPassages(tmp_path)) as stored:
        assert list(stored) == passages
        assert stored[-1] == passages[-1]
        assert stored[1:3] == passages[1:3]
        with pytest.raises(IndexError):
            stored[4]
    assert (corpus.count, corpus.without_text) == (4, 1)


def test_identical_passages_are_kept_once_and_counted(tmp_path: Path) -> None:
    corpus = store(iter([*PASSAGES, *PASSAGES[:3]]), tmp_path, lambda _: None)
    assert (corpus.count, corpus.duplicates, corpus.equal_texts) == (len(PASSAGES), 3, 0)


def test_two_contents_under_one_id_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="two passages have the id x, the second is 'B'"):
        store(iter([Passage("x", "A", "text"), Passage("x", "B", "text")]), tmp_path, lambda _: None)


def test_a_corpus_without_passages_is_refused(folder: IndexFolder) -> None:
    with pytest.raises(DataError, match=r"no passages.*dataset\.corpus"):
        folder.build(iter([]), silent)
    assert not folder.finished()


def test_titles_only_are_counted_and_searched(folder: IndexFolder) -> None:
    manifest = folder.build((Passage.of(passage.title, "") for passage in PASSAGES), silent)
    assert manifest["corpus"]["without_text"] == len(PASSAGES)
    with closing(folder.open()) as index:
        assert titles(index, Search("railway of Ostrand", 2))[0][0] == "Ostrand railway"
        assert len(titles(index, Search("lighthouse", 100))[0]) == 8  # equal, empty texts are not collapsed


def test_the_hash_of_a_corpus_is_that_of_its_ids_in_order(tmp_path: Path) -> None:
    hashes = []
    for number, passages in enumerate((PASSAGES, PASSAGES[::-1], PASSAGES[1:], PASSAGES)):
        (tmp_path / str(number)).mkdir()
        hashes.append(store(iter(passages), tmp_path / str(number), lambda _: None).hash)
    assert hashes[0] == hashes[3]
    assert len(set(hashes)) == 3


def test_storing_needs_no_memory_for_texts(tmp_path: Path) -> None:
    """40 MB of text through a process that may have 25 MB beyond what it has when it starts."""
    script = f"""
import resource, sys
from pathlib import Path
import numpy
from kgqa.retrieval.passages import StoredPassages, store
from kgqa.types import Passage
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_DATA, (used + (25 << 20), used + (25 << 20)))
passages = (Passage.of(f"Page {{n}}", f"{{n}} " * 1_000) for n in range(8_000))
print(store(passages, Path({str(tmp_path)!r}), lambda _: None).count)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ran.stdout == "8000\n", ran.stderr
    assert (tmp_path / "passages.jsonl").stat().st_size > 39_000_000


def test_opening_takes_no_longer_for_a_large_corpus(tmp_path: Path) -> None:
    store((Passage.of(f"Page {n}", f"The text of page {n}.") for n in range(100_000)), tmp_path, lambda _: None)
    started = time.perf_counter()
    with closing(StoredPassages(tmp_path)) as stored:
        assert stored[99_999].title == "Page 99999"
        assert stored.find_titled("page 70000") == [70_000]
    assert time.perf_counter() - started < 0.05


# What is refused


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"made_from": {"file": "another hash"}}, r"another corpus: it differs in file \(some hash → another hash\)"),
        ({"retriever": "retriever.fields.title=2"}, "another retriever: it differs in fields"),
        ({"retriever": "retriever=tfidf"}, "another retriever: it differs in"),
    ],
)
def test_an_index_of_something_else_is_refused(folder: IndexFolder, change: dict[str, Any], said: str) -> None:
    folder.build(iter(PASSAGES), silent)
    if "retriever" in change:
        change = {"retriever": retriever_of("retriever=bm25", change["retriever"])}
    with pytest.raises(DataError, match=rf"{said}.*delete the folder and run: kgqa data index dataset=d"):
        replace(folder, **change).open()


def test_a_missing_index_names_the_command(folder: IndexFolder) -> None:
    with pytest.raises(DataError, match="no finished index here; run: kgqa data index dataset=d"):
        folder.open()


def damage_cut(path: Path) -> None:
    file = next((path / "finder").iterdir())
    file.write_bytes(file.read_bytes()[:-1])


def damage_lost(path: Path) -> None:
    (path / "titles.bin").unlink()


def damage_count(path: Path) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["corpus"]["count"] += 1
    (path / "manifest.json").write_text(json.dumps(manifest))


def damage_format(path: Path) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, "format": 0}))


def damage_keys(path: Path) -> None:
    (path / "manifest.json").write_text('{"format": 1}')


def damage_manifest(path: Path) -> None:
    (path / "manifest.json").write_text("{")


@pytest.mark.parametrize("damage", [damage_cut, damage_lost, damage_count, damage_format, damage_keys, damage_manifest])
def test_a_damaged_index_is_refused_and_built_anew(folder: IndexFolder, damage: Any) -> None:
    folder.build(iter(PASSAGES), silent)
    damage(folder.path)
    with pytest.raises(DataError, match="delete the folder and run: kgqa data index dataset=d"):
        folder.open()
    with opened(folder) as index:
        assert titles(index, Search(QUERY, 1)) == [["Ostrand railway"]]


def test_changed_content_is_found_by_its_hash(folder: IndexFolder) -> None:
    folder.build(iter(PASSAGES), silent)
    folder.verify()
    file = folder.path / "passages.jsonl"
    file.write_bytes(file.read_bytes().replace(b"Ostrand", b"Ostrant"))
    for found in (folder.open, folder.verify):
        with pytest.raises(DataError, match=r"passages\.jsonl changed since it was written"):
            found()
