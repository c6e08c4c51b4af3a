"""Index folders: storing, building, damage, and searching in corpus, titles and pools."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kgqa.calls import Locate, Search
from kgqa.errors import ConfigError, DataError
from kgqa.identity.component import identity_of
from kgqa.protocols import Finder, Retriever
from kgqa.retrieval.index import IndexFolder
from kgqa.retrieval.passages import StoredPassages, store
from kgqa.retrieval.search import PassageIndex, PoolIndex
from kgqa.types import Json, Passage
from kgqa.util.fs import lock_file, remove
from tests.retrieval.conftest import PASSAGES, retriever_of

QUERY = "Which railway carried slate to the harbour of Ostrand?"


def silent(stage: str, count: int, total: int | None) -> None:
    """Progress that nobody watches."""


def opened(folder: IndexFolder, passages: Sequence[Passage] = PASSAGES) -> closing[PassageIndex]:
    folder.build(iter(passages), silent)
    return closing(folder.open())


def titles(index: PassageIndex, *calls: Search) -> list[list[str]]:
    return [[passage.title for passage in passages] for passages in index.search(calls)]


class Counting:
    """BM25 that counts its builds, and can be killed in one."""

    pools = True

    def __init__(self, real: Retriever) -> None:
        self.real, self.builds, self.dies = real, 0, False

    def identity(self) -> Mapping[str, Json]:
        return identity_of(self.real)

    def build(self, passages: Sequence[Passage], folder: Path, advance: Any) -> None:
        self.builds += 1
        if self.dies:
            (folder / "half-built").write_text("junk")
            raise KeyboardInterrupt
        self.real.build(passages, folder, advance)

    def open(self, passages: Sequence[Passage], folder: Path) -> Finder:
        return self.real.open(passages, folder)


@pytest.fixture
def counting(folder: IndexFolder) -> Counting:
    return Counting(folder.retriever)


def test_stored_passages_come_back_as_they_were(tmp_path: Path) -> None:
    sentences = Passage.of("Ostrand", "First. Second.", ("First.", " Second."))
    odd = (
        Passage.of("", "no title\nand\u2028line ends\0"),
        Passage("an id of one's own", "T", "half \ud800 character"),
    )
    passages = [sentences, *odd, Passage.of("Ωmega “quoted”", "")]
    corpus = store(iter([*passages, passages[0]]), tmp_path, lambda _: None)
    with closing(StoredPassages(tmp_path)) as stored:
        assert list(stored) == passages
        assert stored[-1] == passages[-1]
        assert stored[1:3] == passages[1:3]
        with pytest.raises(IndexError):
            stored[4]
    assert (corpus.count, corpus.without_text, corpus.duplicates, corpus.equal_texts) == (
        4,
        1,
        1,
        0,
    )
    hashes = [
        store(iter(each), tmp_path, lambda _: None).hash
        for each in (PASSAGES, PASSAGES[::-1], PASSAGES[1:])
    ]
    assert store(iter(PASSAGES), tmp_path, lambda _: None).hash == hashes[0]
    assert len(set(hashes)) == 3


def test_contradictory_and_empty_corpora_are_rejected(folder: IndexFolder) -> None:
    with pytest.raises(DataError, match="two passages have the id x, the second is 'B'"):
        folder.build(iter([Passage("x", "A", "text"), Passage("x", "B", "text")]), silent)
    with pytest.raises(DataError, match=r"no passages.*dataset\.corpus"):
        folder.build(iter([]), silent)
    assert not folder.finished()
    with pytest.raises(DataError, match=r"no finished index\. Run: kgqa data index dataset=d"):
        folder.open()


def test_interrupted_build_is_repeated(folder: IndexFolder, counting: Counting) -> None:
    def cut_short() -> Iterator[Passage]:
        yield from PASSAGES[:5]
        raise KeyboardInterrupt

    folder = replace(folder, retriever=counting)
    with pytest.raises(KeyboardInterrupt):
        folder.build(cut_short(), silent)
    counting.dies = True
    with pytest.raises(KeyboardInterrupt):
        folder.build(iter(PASSAGES), silent)
    assert not folder.finished()
    counting.dies = False
    with opened(folder) as index:
        assert titles(index, Search(QUERY, 1)) == [["Ostrand railway"]]
        assert len(index.passages) == len(PASSAGES)
    assert not (folder.path / "finder" / "half-built").exists()
    # a finished index is not built again
    folder.build(iter([]), silent)
    assert counting.builds == 2


def test_a_build_waits_for_another_and_uses_its_index(folder: IndexFolder) -> None:
    stages: list[str] = []
    with ThreadPoolExecutor() as pool:
        with lock_file(folder.path / ".lock"):
            waiting = pool.submit(
                folder.build, iter(PASSAGES), lambda stage, *_: stages.append(stage)
            )
            while not stages:
                time.sleep(0.01)
            assert stages == ["waiting for another kgqa process to index these"]
            assert not folder.finished()
        assert waiting.result()["corpus"]["count"] == len(PASSAGES)


@pytest.mark.slow
def test_full_disk_is_one_line_and_the_lock_is_free(tmp_path: Path) -> None:
    """A limit on file size is refused by the kernel like a full disk, and needs no privileges."""
    script = f"""
import resource, signal
from pathlib import Path
from kgqa.errors import StorageError
from kgqa.retrieval.index import IndexFolder
from tests.retrieval.conftest import MADE_FROM, retriever_of
from kgqa.types import Passage
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
many, few = " ".join(f"word{{n}}" for n in range(20_000)), "a few words " * 1_000
for limit, words in ((30_000, many), (1_000, few)):  # while indexing, while reading
    folder = IndexFolder(Path({str(tmp_path)!r}) / str(limit), retriever_of("retriever=bm25"), MADE_FROM, "build")
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        folder.build((Passage.of(str(n), words[n::400]) for n in range(400)) , lambda *_: None)
    except StorageError as error:
        print(str(error).count(chr(10)), "Free disk space" in str(error), folder.finished())
"""
    root = Path(__file__).parents[2]
    # -B: the limit would also cut compiled modules, which Python stores unchecked for all later processes
    ran = subprocess.run(
        [sys.executable, "-B", "-c", script], capture_output=True, text=True, check=False, cwd=root
    )
    assert ran.stdout == "0 True False\n" * 2, ran.stderr


def test_an_index_of_something_else_is_refused(folder: IndexFolder) -> None:
    folder.build(iter(PASSAGES), silent)
    boosted, tfidf = (
        retriever_of("retriever=bm25", "retriever.fields.title=2"),
        retriever_of("retriever=tfidf"),
    )
    for other, message in (
        (
            replace(folder, made_from={"file": "x"}),
            r"another corpus: it differs in file \(some hash → x\)",
        ),
        (replace(folder, retriever=boosted), "another retriever: it differs in fields"),
        (replace(folder, retriever=tfidf), "another retriever: it differs in"),
    ):
        with pytest.raises(
            DataError, match=rf"{message}.*Delete the folder and run: kgqa data index dataset=d"
        ):
            other.open()


@pytest.mark.parametrize("damage", ["cut", "lost", '"format": 2', '"film"', "{"])
def test_a_damaged_index_is_refused_and_built_again(folder: IndexFolder, damage: str) -> None:
    folder.build(iter(PASSAGES), silent)
    manifest = folder.path / "manifest.json"
    if damage == "cut":
        os.truncate(next((folder.path / "finder").glob("*.idx")), 9)
    elif damage == "lost":
        (folder.path / "titles.npy").unlink()
    else:
        change = {'"format": 2': '"format": 3', '"film"': '"files"', "{": manifest.read_text()}[
            damage
        ]
        manifest.write_text(manifest.read_text().replace(change, damage, 1))
    with pytest.raises(DataError, match="Delete the folder and run: kgqa data index dataset=d"):
        folder.open()
    with opened(folder) as index:
        assert titles(index, Search(QUERY, 1)) == [["Ostrand railway"]]
    file = folder.path / "passages.jsonl"
    file.write_bytes(file.read_bytes().replace(b"Ostrand", b"Ostrant"))
    for check in (folder.open, folder.verify):
        with pytest.raises(
            DataError, match=r"damaged index: passages\.jsonl changed since it was written"
        ):
            check()
    with opened(folder) as index:
        assert titles(index, Search(QUERY, 1)) == [["Ostrand railway"]]


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest.pop("corpus"),
        lambda manifest: manifest.update(corpus=5),
        lambda manifest: manifest["corpus"].update(count=41),
        lambda manifest: manifest["corpus"].update(failed="x"),
        lambda manifest: manifest["corpus"].pop("equal_texts"),
        lambda manifest: manifest["files"].pop("passages.jsonl"),
        lambda manifest: manifest["files"].pop("finder/meta.json"),
        lambda manifest: manifest.update(files={}),
    ],
    ids=["no corpus", "wrong type", "count", "text", "no key", "corpus file", "file", "no files"],
)
def test_changed_manifest_is_rejected(folder: IndexFolder, change: Any) -> None:
    folder.build(iter(PASSAGES), silent)
    manifest = json.loads((folder.path / "manifest.json").read_text())
    change(manifest)
    (folder.path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="Delete the folder and run: kgqa data index dataset=d"):
        folder.open()
    with opened(folder) as index:
        assert titles(index, Search(QUERY, 1)) == [["Ostrand railway"]]


@pytest.mark.parametrize("kind", ["folder", "loop", "pipe", "dead link"])
@pytest.mark.parametrize("name", ["manifest.json", "passages.jsonl", "titles.npy", "finder"])
def test_file_of_another_kind_is_replaced(folder: IndexFolder, name: str, kind: str) -> None:
    folder.build(iter(PASSAGES), silent)
    file = folder.path / name
    remove(file)
    if kind == "folder":
        file.mkdir()
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to(name if kind == "loop" else "nowhere")
    with pytest.raises(DataError, match=r"Delete the folder and run|no finished index"):
        folder.open()
    with opened(folder) as index:
        assert titles(index, Search(QUERY, 1)) == [["Ostrand railway"]]


def test_results_are_in_the_order_of_the_calls(folder: IndexFolder) -> None:
    outside = Passage.of("Elsewhere", "A railway that no corpus has.")
    scope = ("vessin  RAILWAY", "Vessin_choir", "No such title")
    expected = [
        (Search("railway", 9, pool=(*PASSAGES[:7], outside)), ["Halverby railway", "Elsewhere"]),
        (Search(QUERY, 1), ["Ostrand railway"]), (Search(QUERY, 1, titles=scope), ["Vessin railway"]),
        (Search("Vessin choir", 5, titles=scope), ["Vessin choir", "Vessin railway"]),
        (Search(QUERY, 5, titles=("No such title",)), []), (Search(QUERY, 5, titles=()), []),
        (Search("railway", 9, pool=()), []), (Search("pressed ferns of Vessin", 1), ["Vessin museum"]),
        (Search(QUERY, 0), []), *((Search(query, 5), []) for query in ("", "  ", "?!… ()", "the of and")),
    ]  # fmt: skip
    with opened(folder) as index:
        assert titles(index, *(call for call, _ in expected)) == [names for _, names in expected]
        assert identity_of(index)["passages"] == len(PASSAGES)


@pytest.mark.parametrize(
    ("positions", "pool", "expected"),
    [((1, 0), None, [1, 0]), ((len(PASSAGES), -1), None, []), ((0,), PASSAGES[2:], [2])],
    ids=["corpus", "unknown", "pool"],
)
def test_passages_are_read_by_their_place(
    folder: IndexFolder,
    positions: tuple[int, ...],
    pool: tuple[Passage, ...] | None,
    expected: list[int],
) -> None:
    pool = None if pool is None else tuple(pool)
    with opened(folder) as index:
        (passages,) = index.search([Search("", 5, positions=positions, pool=pool)])
    assert [PASSAGES.index(passage) for passage in passages] == expected


def test_places_of_passages_are_found(folder: IndexFolder) -> None:
    unknown = Passage.of("Nowhere", "A text.")
    calls = [
        Locate((PASSAGES[2], unknown, PASSAGES[0])),
        Locate((PASSAGES[2],), pool=tuple(PASSAGES[1:])),
    ]
    with opened(folder) as index:
        assert index.locate(calls) == [(2, -1, 0), (1,)]


def test_keywords_are_counted_without_the_retriever(folder: IndexFolder) -> None:
    """A-RAG's score: occurrences × characters, in title and text."""
    passages = (
        Passage.of("Slate", "A stone."),
        Passage.of("Quarry", "Slate, slate and SLATE."),
        Passage.of("Sea", ""),
    )
    expected = [
        (Search("", 5, keywords=("slate",)), ["Quarry", "Slate"]),
        (Search("", 1, keywords=("Slate", "a stone")), ["Quarry"]),
        (Search("", 5, keywords=("slate\na stone.", "quarry")), ["Slate", "Quarry"]), (Search(QUERY, 1), ["Quarry"]),
        (Search("", 5, keywords=("slate",), titles=("Slate", "Sea")), ["Slate"]),
        (Search("", 5, keywords=("slate",), pool=passages[::2]), ["Slate"]),
        (Search("slate", 5, keywords=(" ", "tunnel")), []), (Search("slate", 0, keywords=("slate",)), []),
    ]  # fmt: skip
    with opened(folder, passages) as index:
        assert titles(index, *(call for call, _ in expected)) == [names for _, names in expected]


def test_pool_is_indexed_once_and_dropped_on_close(folder: IndexFolder, counting: Counting) -> None:
    folder = replace(folder, retriever=counting)
    with opened(folder) as index:
        for query in ("railway", "lighthouse", "choir"):
            index.search([Search(query, 3, pool=PASSAGES[:9]), Search(query, 3, pool=PASSAGES[9:])])
        assert counting.builds == 1 + 2
        folders = [Path(name.name) for _, name in index._pools.values()]
        assert all(path.is_dir() for path in folders)
    assert not any(path.exists() for path in folders)
    counting.pools = False
    with opened(folder) as index, pytest.raises(ConfigError, match="Choose another"):
        index.search([Search("railway", 3, pool=PASSAGES[:9])])
    alone = PoolIndex(counting.real)
    pools = (("choir", 9, PASSAGES[3:5]), ("choir", 5, ()), ("museum", 1, PASSAGES[:3]))
    assert alone.search([Search(text, k, pool=pool) for text, k, pool in pools]) == [
        (PASSAGES[4],),
        (),
        (PASSAGES[2],),
    ]
    assert alone.find_titled("Halverby choir") == ()
    assert identity_of(alone) == {
        "class": "PoolIndex",
        "retriever": identity_of(counting.real),
        "corpus": None,
    }
    alone.close()


def test_duplicate_passages_are_returned_once(folder: IndexFolder) -> None:
    """IRCoT collapses by lower-cased text; the best of them stays, and `k` passages are given all the same."""
    same = [
        Passage.of(f"Copy {n}", "The RAILWAY to Ostrand." if n % 2 else "the railway to ostrand.")
        for n in range(60)
    ]
    with opened(folder, [*same, *PASSAGES]) as index:
        assert index.corpus["equal_texts"] == 59
        assert titles(index, Search("copy", 3)) == [["Copy 0"]]
        (results,) = index.search([Search("railway", 9)])
        assert len({passage.text.lower() for passage in results}) == len(results) == 9
        assert [passage.title for passage in results if passage.title.startswith("Copy")] == [
            "Copy 0"
        ]
        (in_pool,) = index.search([Search("railway", 9, pool=(*same, *PASSAGES))])
        assert in_pool == results
    titled = {
        "slate slate slate": "The harbour.",
        "slate slate": "The quarry.",
        "slate": "The flooded tunnel.",
    }
    last = Passage.of("a title of many other words and slate", "The HARBOUR.")
    passages = [*(Passage.of(title, text) for title, text in titled.items()), last]
    with opened(
        replace(folder, path=folder.path / "titled"), passages
    ) as index:  # where its best passage was
        expected = [[*titled]]
        assert (
            titles(index, Search("slate", 3))
            == titles(index, Search("slate", 3, pool=(*passages,)))
            == expected
        )
        assert index.corpus["equal_texts"] == 1
