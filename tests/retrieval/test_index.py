"""Index folders: what is stored, what is refused, what survives a killed build, and how scopes are searched."""

from __future__ import annotations

import json
import os
import shutil
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

from kgqa.calls import Search
from kgqa.errors import ConfigError, DataError, StorageError
from kgqa.protocols import Finder, Retriever
from kgqa.retrieval.index import IndexFolder
from kgqa.retrieval.passages import StoredPassages, store
from kgqa.retrieval.search import PassageIndex
from kgqa.storage import locked
from kgqa.types import Json, Passage
from tests.retrieval.conftest import PASSAGES, retriever_of

QUERY = "Which railway carried slate to the harbour of Ostrand?"
MADE_FROM = {"file": "some hash"}


@pytest.fixture
def folder(tmp_path: Path) -> IndexFolder:
    return IndexFolder(tmp_path / "index", retriever_of("retriever=bm25"), MADE_FROM, "kgqa index build dataset=d")


def silent(stage: str, count: int, total: int | None) -> None:
    """Progress that nobody watches."""


def opened(folder: IndexFolder, passages: Sequence[Passage] = PASSAGES) -> closing[PassageIndex]:
    folder.build(iter(passages), silent)
    return closing(folder.open())


def titles(index: PassageIndex, *calls: Search) -> list[list[str]]:
    return [[passage.title for passage in found] for found in index.search(calls)]


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
        assert stored.titled("page 70000") == [70_000]
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
    with pytest.raises(DataError, match=rf"{said}.*delete the folder and run: kgqa index build dataset=d"):
        replace(folder, **change).open()


def test_a_missing_index_names_the_command(folder: IndexFolder) -> None:
    with pytest.raises(DataError, match="no finished index here; run: kgqa index build dataset=d"):
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
    with pytest.raises(DataError, match="delete the folder and run: kgqa index build dataset=d"):
        folder.open()
    with opened(folder) as index:
        assert titles(index, Search(QUERY, 1)) == [["Ostrand railway"]]


def test_changed_content_is_found_by_its_hash(folder: IndexFolder) -> None:
    folder.build(iter(PASSAGES), silent)
    folder.verify()
    file = folder.path / "passages.jsonl"
    file.write_bytes(file.read_bytes().replace(b"Ostrand", b"Ostrant"))
    folder.open().close()  # sizes are as they were
    with pytest.raises(DataError, match=r"passages\.jsonl changed since it was written"):
        folder.verify()


# Building


class Stopping:
    """BM25 whose build dies after the passages are stored; remembers whether it was asked."""

    pools = True

    def __init__(self, real: Retriever) -> None:
        self.real, self.asked, self.dies = real, 0, True

    def identity(self) -> Mapping[str, Json]:
        return self.real.identity()

    def build(self, passages: Sequence[Passage], folder: Path, advance: Any) -> None:
        self.asked += 1
        if self.dies:
            (folder / "half-built").write_text("junk")
            raise KeyboardInterrupt
        self.real.build(passages, folder, advance)

    def open(self, passages: Sequence[Passage], folder: Path) -> Finder:
        return self.real.open(passages, folder)


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
        with locked(folder.path / ".lock"):
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
from tests.retrieval.test_index import IndexFolder, MADE_FROM, retriever_of, silent
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


# Searching


def test_the_whole_corpus_is_searched(folder: IndexFolder) -> None:
    with opened(folder) as index:
        assert titles(index, Search(QUERY, 1), Search("pressed ferns of Vessin", 1)) == [
            ["Ostrand railway"],
            ["Vessin museum"],
        ]
        assert index.identity()["passages"] == len(PASSAGES)


def test_a_scope_of_titles_is_searched_alone(folder: IndexFolder) -> None:
    with opened(folder) as index:
        scope = ("vessin  RAILWAY", "Vessin_choir", "No such title")
        assert titles(index, Search(QUERY, 5, titles=scope))[0][0] == "Vessin railway"
        assert set(titles(index, Search("Vessin", 5, titles=scope))[0]) == {"Vessin railway", "Vessin choir"}
        assert titles(index, Search(QUERY, 5, titles=("No such title",)), Search(QUERY, 5, titles=())) == [[], []]


def test_a_title_may_have_several_passages(folder: IndexFolder) -> None:
    pages = [Passage.of("Ostrand", f"Paragraph {n} about the harbour.") for n in range(5)]
    with opened(folder, [*PASSAGES, *pages]) as index:
        assert set(titles(index, Search("harbour", 9, titles=("ostrand",)))[0]) == {"Ostrand"}
        assert len(index.search([Search("harbour", 9, titles=("ostrand",))])[0]) == 5


def test_a_pool_is_searched_as_if_it_were_the_corpus(folder: IndexFolder) -> None:
    outside = Passage.of("Elsewhere", "A railway that no corpus has.")
    with opened(folder) as index:
        found = index.search([Search("railway", 9, pool=(*PASSAGES[:7], outside)), Search("railway", 9, pool=())])
        assert [passage.title for passage in found[0]] == ["Halverby railway", "Elsewhere"]
        assert found[1] == ()
        assert index.search([Search("railway", 9, pool=PASSAGES[:4])])[0][0].title == "Halverby railway"


def test_a_pool_is_indexed_once_and_dropped_when_closed(folder: IndexFolder) -> None:
    counting = Stopping(folder.retriever)
    counting.dies = False
    folder = replace(folder, retriever=counting)
    with opened(folder) as index:
        for query in ("railway", "lighthouse", "choir"):
            index.search([Search(query, 3, pool=PASSAGES[:9]), Search(query, 3, pool=PASSAGES[9:])])
        assert counting.asked == 1 + 2
        kept = [Path(name.name) for _, name in index._pools._kept.values()]
        assert all(path.is_dir() for path in kept)
    assert not any(path.exists() for path in kept)


def test_a_retriever_without_pools_says_so(folder: IndexFolder) -> None:
    counting = Stopping(folder.retriever)
    counting.dies, counting.pools = False, False
    with (
        opened(replace(folder, retriever=counting)) as index,
        pytest.raises(ConfigError, match="choose another"),
    ):
        index.search([Search("railway", 3, pool=PASSAGES[:9])])


def test_passages_of_one_text_are_given_once_and_the_next_ones_move_up(folder: IndexFolder) -> None:
    """IRCoT collapses by lower-cased text; the best of them stays, and `k` passages are given all the same."""
    same = [
        Passage.of(f"Copy {n}", "The RAILWAY to Ostrand." if n % 2 else "the railway to ostrand.") for n in range(60)
    ]
    with opened(folder, [*same, *PASSAGES]) as index:
        assert index.corpus["equal_texts"] == 59
        assert titles(index, Search("copy", 3)) == [["Copy 0"]]
        (found,) = index.search([Search("railway", 9)])
        assert len({passage.text.lower() for passage in found}) == len(found) == 9
        assert [passage.title for passage in found if passage.title.startswith("Copy")] == ["Copy 0"]
        (in_pool,) = index.search([Search("railway", 9, pool=(*same, *PASSAGES))])
        assert in_pool == found


def test_a_repeated_text_stands_where_its_best_passage_stood(folder: IndexFolder) -> None:
    passages = [
        Passage.of("slate slate slate", "The harbour."),
        Passage.of("slate slate", "The quarry."),
        Passage.of("slate", "The tunnel, which was flooded."),
        Passage.of("a title of many other words and slate", "The HARBOUR."),
    ]
    with opened(folder, passages) as index:
        assert titles(index, Search("slate", 3)) == [["slate slate slate", "slate slate", "slate"]]
        assert titles(index, Search("slate", 3, pool=tuple(passages))) == titles(index, Search("slate", 3))


@pytest.mark.parametrize("query", ["", "  ", "?!… ()", "the of and"])
def test_a_query_without_words_finds_nothing(folder: IndexFolder, query: str) -> None:
    with opened(folder) as index:
        assert index.search([Search(query, 5), Search(QUERY, 0)]) == [(), ()]


def test_replies_keep_the_order_of_the_calls(folder: IndexFolder) -> None:
    calls = [
        Search("railway", 2, pool=PASSAGES[:9]),
        Search(QUERY, 1),
        Search(QUERY, 3, titles=("Vessin railway",)),
        Search("lighthouse", 1, pool=PASSAGES[9:]),
        Search("Ekelby museum", 1),
    ]
    with opened(folder) as index:
        assert list(index.search(calls)) == [index.search([call])[0] for call in calls]
