"""An index with changed bits is refused in one line: no traceback, no hang, no other passage found."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kgqa.calls import Search
from kgqa.errors import DataError
from kgqa.retrieval import checksums as content
from kgqa.retrieval.bm25 import Bm25Finder
from kgqa.retrieval.index import FINDER, IndexFolder
from kgqa.types import Passage
from tests.retrieval.conftest import MADE_FROM, PASSAGES, RETRIEVERS, needed, retriever_of
from tests.retrieval.index_folders import QUERY, opened, silent, titles
from tests.retrieval.word_vectors import CORPUS, Words, dense

EMBEDDED = [case for case in RETRIEVERS if case != "elasticsearch"]
ATTACKS = 12  # of each retriever
QUERIES = (Search(QUERY, 5), Search("pears and plums of Vessin", 5))


def built(case: str, path: Path, passages: Sequence[Passage] = PASSAGES) -> IndexFolder:
    folder = IndexFolder(path, retriever_of(*RETRIEVERS[case][0]), MADE_FROM, "kgqa data index dataset=d")
    folder.build(iter(passages), silent)
    return folder


def flipped(path: Path, seed: int) -> None:
    """1 to 20 bits of one of the index's files, drawn by its size as a disk's own errors are, or of any of them."""
    chance = random.Random(seed)
    files = sorted(file for file in path.rglob("*") if file.is_file() and file.name != ".lock" and file.stat().st_size)
    weights = [file.stat().st_size if seed % 2 else 1 for file in files]
    (file,) = chance.choices(files, weights)
    changed = bytearray(file.read_bytes())
    for bit in chance.sample(range(8 * len(changed)), min(chance.randint(1, 20), 8 * len(changed))):
        changed[bit // 8] ^= 1 << bit % 8
    file.write_bytes(changed)


@pytest.mark.weights
@pytest.mark.parametrize("case", EMBEDDED)
def test_changed_bits_are_never_other_passages(case: str, tmp_path: Path) -> None:
    needed(case)
    whole = built(case, tmp_path / "whole")
    with closing(whole.open()) as index:
        wanted = index.search(QUERIES)
    told: list[str] = []
    for seed in range(ATTACKS):
        shutil.rmtree(tmp_path / "index", ignore_errors=True)
        shutil.copytree(tmp_path / "whole", tmp_path / "index")
        flipped(tmp_path / "index", seed)
        folder = IndexFolder(tmp_path / "index", whole.retriever, whole.made_from, whole.command)
        try:
            with closing(folder.open()) as index:
                assert index.search(QUERIES) == wanted, seed
        except DataError as error:
            told.append(str(error))
    assert all(re.search(rf"{tmp_path / 'index'}: .*run: kgqa data index dataset=d", line) for line in told), told
    assert len(told) >= ATTACKS // 2


def test_a_damaged_index_names_the_file_and_is_built_anew_by_the_command_it_names(folder: IndexFolder) -> None:
    folder.build(iter(PASSAGES), silent)
    file = next(file for file in sorted((folder.path / "finder").iterdir()) if file.suffix == ".idx")
    changed = bytearray(file.read_bytes())
    changed[7] ^= 1
    file.write_bytes(changed)
    with pytest.raises(
        DataError, match=rf"damaged index: finder/{file.name} changed since it was written; delete .* run"
    ):
        folder.open()
    with opened(folder) as index:
        assert titles(index, Search(QUERY, 1)) == [["Ostrand railway"]]


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if 256 MiB and a block were the size of the tests' indexes."""
    monkeypatch.setattr(content, "WHOLE", 1_000)
    monkeypatch.setattr(content, "BLOCK", 256)
    monkeypatch.setattr(content, "DRAWN", 4)


@pytest.mark.usefixtures("large")
def test_of_a_large_index_the_first_and_last_blocks_and_some_drawn_ones_are_read(folder: IndexFolder) -> None:
    folder.build(iter(PASSAGES), silent)
    file = folder.path / "passages.jsonl"
    whole = file.read_bytes()
    refused = {seed: found_by(folder, file, whole, seed) for seed in range(3)}
    count = -(-len(whole) // 256)
    for seed, blocks in refused.items():
        assert {0, count - 1} <= blocks, seed
        assert 4 <= len(blocks) <= 6, seed
    assert len(set(map(frozenset, refused.values()))) == 3  # another seed reads others
    assert found_by(folder, file, whole, 0) == refused[0]
    with opened(folder) as index:
        assert len(index.passages) == len(PASSAGES)


def found_by(folder: IndexFolder, file: Path, whole: bytes, seed: int) -> set[int]:
    """The blocks of a file whose change an opening with this seed sees."""
    found = set()
    for block in range(-(-len(whole) // 256)):
        changed = bytearray(whole)
        changed[block * 256] ^= 64
        file.write_bytes(changed)
        try:
            folder.open(seed).close()
        except DataError:
            found.add(block)
    file.write_bytes(whole)
    return found


@pytest.mark.usefixtures("large")
def test_a_build_reads_a_large_index_as_a_whole(folder: IndexFolder) -> None:
    manifest = folder.build(iter(PASSAGES), silent)
    assert all("blocks" in written for written in manifest["files"].values())
    for place in range(0, manifest["files"]["titles.bin"]["bytes"], 97):
        file = folder.path / "titles.bin"
        whole = file.read_bytes()
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        folder.build(iter(PASSAGES), silent)
        assert file.read_bytes() == whole, place


@pytest.mark.parametrize("key", ["bytes", "sha256", "count", "files"])
def test_a_changed_key_of_the_manifest_is_one_line(folder: IndexFolder, key: str) -> None:
    folder.build(iter(PASSAGES), silent)
    file = folder.path / "manifest.json"
    for text in (file.read_text(), file.read_text().replace('"digest"', '"digesu"')):
        file.write_text(text.replace(f'"{key}"', f'"{key[:-1]}~"'))
        with pytest.raises(DataError, match=r"(manifest\.json|changed since) .*run: kgqa data index"):
            folder.open()


class PanicException(BaseException):
    """A panic of Rust, no `Exception`, as PyO3 has it."""


@pytest.fixture
def panicking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files too large to be read as a whole may still be damaged where nothing was drawn."""

    class Searcher:
        def search(self, *_: Any, **__: Any) -> Any:
            raise PanicException("range end index 9 out of range for slice of length 8\nand a stack")

    real = Bm25Finder.__dict__["_index_parts"].func
    monkeypatch.setattr(Bm25Finder, "_index_parts", property(lambda finder: (real(finder)[0], Searcher())))


@pytest.mark.usefixtures("panicking")
def test_a_panic_of_the_library_is_a_damaged_index(folder: IndexFolder) -> None:
    with (
        opened(folder) as index,
        pytest.raises(DataError, match=r"damaged index \(range end index 9 .*length 8\); del"),
    ):
        index.search([Search(QUERY, 3)])


def test_vectors_are_not_taken_over_from_a_damaged_index(tmp_path: Path) -> None:
    first = IndexFolder(tmp_path / "words" / "1a", dense(Words(scale=5.0, own="first")), MADE_FROM, "kgqa data index")
    first.build(iter(CORPUS), silent)
    shard = min((first.path / FINDER).glob("vectors-*.npy"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"~")
    encoder = Words(scale=5.0, own="second")
    second = IndexFolder(tmp_path / "words" / "2b", dense(encoder), {"file": "another"}, "kgqa data index")
    second.build(iter(CORPUS), silent)
    assert len(encoder.encoded) == 40  # of the damaged shard; the others are linked
