"""Passage graphs on disk: what is kept of them, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgqa.calls import Neighbours
from kgqa.errors import DataError
from kgqa.retrieval.graphs.keywords import Keywords
from kgqa.retrieval.graphs.store import GraphStore, averages
from kgqa.types import Passage
from tests.retrieval.linked_passages import passages

POOL = tuple(passages("harbour of Wexcombe harbour", "harbour", "lantern", title="S"))


def store(folder: Path, keywords: int = 1) -> GraphStore:
    return GraphStore(folder, "tfidf", Keywords(keywords, 1), lambda: POOL)


def test_neighbours_come_in_the_pools_order_and_from_the_disk_the_second_time(tmp_path: Path) -> None:
    assert store(tmp_path).neighbours(Neighbours(POOL[1], POOL)) == (POOL[0],)
    assert store(tmp_path).has(POOL)
    kept = store(tmp_path)
    assert kept.neighbours(Neighbours(POOL[0], POOL)) == (POOL[1],)
    assert kept.neighbours(Neighbours(POOL[2], None)) == ()


def test_a_pool_that_repeats_a_passage_holds_it_once(tmp_path: Path) -> None:
    assert store(tmp_path).neighbours(Neighbours(POOL[0], (*POOL, *POOL))) == (POOL[1],)


def test_other_settings_and_other_passages_have_other_files(tmp_path: Path) -> None:
    store(tmp_path).build(POOL)
    assert not store(tmp_path, keywords=2).has(POOL)
    assert not store(tmp_path).has(POOL[:2])


def test_a_passage_outside_the_pool_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not in the collection"):
        store(tmp_path).neighbours(Neighbours(Passage.of("elsewhere", "x"), POOL))


@pytest.mark.parametrize("content", [b"", b"no archive", None])
def test_a_damaged_file_is_named_with_its_remedy(tmp_path: Path, content: bytes | None) -> None:
    store(tmp_path).build(POOL)
    (file,) = tmp_path.rglob("*.npz")
    file.write_bytes(file.read_bytes()[:100] if content is None else content)
    with pytest.raises(DataError, match=rf"{file.name}: damaged graph .* delete the file"):
        store(tmp_path).open(POOL)


def test_nothing_but_whole_files_lies_in_the_folder(tmp_path: Path) -> None:
    store(tmp_path).build(POOL)
    assert [file.suffix for file in tmp_path.rglob("*") if file.is_file()] == [".npz"]


def test_statistics_are_means_of_the_collections(tmp_path: Path) -> None:
    kept = store(tmp_path)
    figures = averages([kept.open(POOL), kept.open(POOL[1:])])
    assert figures["collections"] == 2
    assert figures["passages"] == 2.5
    assert figures["edges"] == 0.5
    assert figures["density"] == pytest.approx((1 / 3) / 2)
    assert figures["without_edges"] == 1
    assert figures["passage_words"] == pytest.approx((4 + 1 + 1 + 1 + 1) / 5)
    assert averages([])["density"] is None
