"""Shards of a corpus: cut by number alone, written whole, merged in an order of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kgqa.errors import ConfigError, DataError, EngineError
from kgqa.experiment.prepare.corpus import LARGEST, CorpusBuild
from kgqa.kg.parsing import Extraction
from kgqa.kg.store import TripleStore
from kgqa.runtime.display import QUIET
from kgqa.types import Passage

PASSAGES = [Passage.of(f"T{number}", f"text {number}") for number in range(100)]


def extraction(passage: Passage, error: str | None = None) -> Extraction:
    return Extraction(passage.id, passage.title, "" if error else f"<{passage.title}; is; x>", error=error)


@pytest.fixture
def store(tmp_path: Path) -> TripleStore:
    return TripleStore(tmp_path / "store", {"model": "tiny"})


@pytest.fixture
def build(store: TripleStore) -> CorpusBuild:
    return prepared(store, "build-1")


def prepared(store: TripleStore, name: str) -> CorpusBuild:
    build = CorpusBuild(store.folder / name)
    with build.claimed():
        build.prepare(PASSAGES, QUIET)
    return build


def finish(build: CorpusBuild, failing: int = 0) -> None:
    """Extract every shard, the last first and its passages backwards; the first `failing` passages fail."""
    failed = {passage.id for passage in PASSAGES[:failing]}
    for shard in reversed(build.shards()):
        backwards = reversed(build.passages(shard))
        build.keep(shard, (extraction(each, "gone" if each.id in failed else None) for each in backwards))


def test_shards_cover_every_passage_once(build: CorpusBuild) -> None:
    places = [place for shard in build.shards() for place in shard]
    assert places == list(range(100))
    assert [passage for shard in build.shards() for passage in build.passages(shard)] == PASSAGES


@pytest.mark.parametrize(("count", "shards"), [(1, 1), (17, 2), (10_000, 64), (5_200_000, 2_600)])
def test_the_number_of_shards_follows_from_that_of_passages(build: CorpusBuild, count: int, shards: int) -> None:
    (build.folder / "manifest.json").write_text(f'{{"passages": {count}}}')
    cut = build.shards()
    assert len(cut) == shards
    assert cut[-1].stop == count
    assert max(map(len, cut)) <= LARGEST


def test_merging_gives_the_same_as_adding_one_by_one(store: TripleStore, build: CorpusBuild, tmp_path: Path) -> None:
    finish(build)
    build.merge(store)
    other = TripleStore(tmp_path / "other", store.built_with)
    for passage in PASSAGES:
        other.add(extraction(passage))
    assert [store.extraction(each) for each in PASSAGES] == [other.extraction(each) for each in PASSAGES]
    assert not build.folder.exists()


def test_a_finished_shard_is_not_asked_again(build: CorpusBuild) -> None:
    first, *others = build.shards()
    build.keep(first, map(extraction, build.passages(first)))
    assert build.unfinished() == others


def test_a_shard_cut_short_is_not_there(build: CorpusBuild) -> None:
    [shard, *_] = build.shards()

    def dies() -> Iterator[Extraction]:
        yield extraction(PASSAGES[0])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build.keep(shard, dies())
    assert shard in build.unfinished()


def test_a_build_killed_while_storing_stores_again(store: TripleStore, build: CorpusBuild) -> None:
    (build.folder / "manifest.json").unlink()
    assert not build.prepared
    again = prepared(store, "build-1")
    assert [passage for shard in again.shards() for passage in again.passages(shard)] == PASSAGES


def test_five_percent_may_fail_and_count_as_empty(store: TripleStore, build: CorpusBuild) -> None:
    finish(build, failing=5)
    build.merge(store)
    assert store.counts(PASSAGES)["failed"] == 5


def test_more_are_refused_and_tried_again_next_time(store: TripleStore, build: CorpusBuild) -> None:
    finish(build, failing=6)
    with pytest.raises(EngineError, match="extraction failed for 6 of 100 passages, first 'T"):
        build.merge(store)
    assert {passage.id for passage in store.missing(PASSAGES)} == {passage.id for passage in PASSAGES[:6]}
    assert not build.folder.exists()


def test_a_broken_shard_is_named(store: TripleStore, build: CorpusBuild) -> None:
    finish(build)
    file = sorted((build.folder / "shards").glob("*.jsonl"))[1]
    file.write_text("{}\n")
    with pytest.raises(DataError, match=rf"{file}:1: not an extraction"):
        build.merge(store)


def test_nothing_to_build_leaves_no_folder(store: TripleStore) -> None:
    build = CorpusBuild(store.folder / "build-2")
    with build.claimed():
        build.prepare([], QUIET)
    assert not build.folder.exists()


def test_two_processes_cannot_build_the_same(build: CorpusBuild) -> None:
    with (
        build.claimed(),
        pytest.raises(ConfigError, match="another kgqa process is building this corpus"),
        build.claimed(),
    ):
        raise AssertionError("claimed twice")


def test_attempts_are_counted_until_they_are_forgotten(build: CorpusBuild) -> None:
    first, second, *_ = build.shards()
    assert [build.begin_attempt(first), build.begin_attempt(first), build.begin_attempt(second)] == [1, 2, 1]
    build.forget_attempts()
    assert build.begin_attempt(first) == 1


def test_a_build_killed_while_it_is_removed_leaves_no_shard_to_the_next(
    store: TripleStore, build: CorpusBuild, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(build)

    def killed(folder: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("kgqa.experiment.prepare.corpus.shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            build.merge(store)
    assert not build.prepared
    build.prepare([Passage.of("New", "text")], QUIET)
    assert build.unfinished() == build.shards()
