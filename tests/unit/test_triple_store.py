"""Triples on disk: resumed, shared, broken."""

from __future__ import annotations

import json
import sqlite3
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from kgqa.errors import DataError, StorageError
from kgqa.kg.parsing import Extraction
from kgqa.kg.store import TripleStore, store_folder
from kgqa.types import Passage, Triple

PASSAGES = tuple(Passage.of(f"T{i}", f"text {i}") for i in range(3))
BUILT_WITH = {"model": "tiny", "max_tokens": 512}


def extraction(passage: Passage, tail: str = "x", error: str | None = None) -> Extraction:
    completion = "" if error else f"<{passage.title}; is; {tail}>"
    return Extraction(passage.id, passage.title, completion, 10, 5, {"passage_cut": 1}, error)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return store_folder(tmp_path / "kg", "demo", BUILT_WITH)


def opened(folder: Path) -> TripleStore:
    return TripleStore(folder, BUILT_WITH)


def test_what_was_added_is_read_by_the_next_process(folder: Path) -> None:
    opened(folder).add(extraction(PASSAGES[0]))
    assert opened(folder).triples(PASSAGES[0]) == (Triple("T0", "is", "x", PASSAGES[0].id),)
    assert json.loads((folder / "manifest.json").read_text()) == BUILT_WITH


def test_a_passage_never_extracted_names_the_command(folder: Path) -> None:
    with pytest.raises(
        DataError, match=f"no triples for passage {PASSAGES[0].id} in .*; run: kgqa kg build dataset=demo"
    ):
        opened(folder).triples(PASSAGES[0])


def test_missing_passages_are_in_order(folder: Path) -> None:
    store = opened(folder)
    store.add(extraction(PASSAGES[1]))
    assert list(store.missing([PASSAGES[2], PASSAGES[1], PASSAGES[0]])) == [PASSAGES[2], PASSAGES[0]]


def test_a_failed_passage_has_no_triples_and_is_not_missing(folder: Path) -> None:
    store = opened(folder)
    store.add(extraction(PASSAGES[0], error="prompt too long"))
    assert store.triples(PASSAGES[0]) == ()
    assert list(store.missing(PASSAGES[:1])) == []
    assert opened(folder).extraction(PASSAGES[0]).error == "prompt too long"


def test_the_first_of_two_extractions_wins(folder: Path) -> None:
    opened(folder).add(extraction(PASSAGES[0], "first"))
    opened(folder).add(extraction(PASSAGES[0], "second"))
    assert opened(folder).triples(PASSAGES[0])[0].tail == "first"


def test_a_store_sees_what_another_adds_later(folder: Path) -> None:
    store, other = opened(folder), opened(folder)
    assert list(store.missing(PASSAGES)) == list(PASSAGES)
    other.add(extraction(PASSAGES[2]))
    assert store.triples(PASSAGES[2])


def test_the_folder_depends_on_every_setting(tmp_path: Path) -> None:
    assert store_folder(tmp_path, "demo", {"b": 1, "a": 2}) == store_folder(tmp_path, "demo", {"a": 2, "b": 1})
    assert store_folder(tmp_path, "demo", {"a": 2}) != store_folder(tmp_path, "demo", {"a": 3})
    assert store_folder(tmp_path, "demo", {}).parent == tmp_path / "demo"


def test_any_completion_survives_the_disk(folder: Path) -> None:
    odd = "line\nbreak \u2028 \udc80 \x00 ⟨T0; is; é⟩"
    opened(folder).add(Extraction(PASSAGES[0].id, "T0", odd))
    assert opened(folder).extraction(PASSAGES[0]).completion == odd


def test_counts_are_sums_over_distinct_passages(folder: Path) -> None:
    store = opened(folder)
    store.add(extraction(PASSAGES[0]))
    store.add(extraction(PASSAGES[1], error="gone"))
    store.add(Extraction(PASSAGES[2].id, "T2", "<a; b>\n<T2; is; text>\n<text; is; y>\n<It; was; z>"))
    assert store.counts(PASSAGES) == {
        "passages": 3, "failed": 1, "empty": 1, "triples": 4, "malformed": 1,
        "replaced_heads": 1, "other_heads": 1, "absent_tails": 2,
        "prompt_tokens": 20, "output_tokens": 10, "passage_cut": 2,
    }  # fmt: skip


def test_statistics_are_written(folder: Path) -> None:
    store = opened(folder)
    store.add(extraction(PASSAGES[0]))
    assert json.loads(store.write_statistics({"triples": 1}).read_text()) == {"triples": 1}


def add_many(folder: Path, writer: int) -> None:
    store = opened(folder)
    for number in range(100):
        passage = Passage.of(f"{writer}-{number}", "text")
        store.add(extraction(passage, "x" * 5000))


def test_two_processes_can_add_at_once(folder: Path) -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        list(pool.map(add_many, [folder, folder], [1, 2]))
    passages = [Passage.of(f"{writer}-{number}", "text") for writer in (1, 2) for number in range(100)]
    assert list(opened(folder).missing(passages)) == []
    assert opened(folder).counts(passages)["triples"] == 200


def test_damaged_file_and_row_are_errors(folder: Path) -> None:
    store = opened(folder)
    store.add(extraction(PASSAGES[0]))
    with sqlite3.connect(store.file) as connection:
        connection.execute("UPDATE extractions SET line = ?", (b'{"passage_id": "p"}',))
    with pytest.raises(DataError, match=r"extractions.sqlite: .*: not an extraction.*delete .* and build it again"):
        opened(folder).triples(PASSAGES[0])
    store.file.write_bytes(b"no database" * 100)
    with pytest.raises(DataError, match=r"extractions.sqlite: damaged"):
        opened(folder).triples(PASSAGES[0])


def test_reading_creates_no_folder(folder: Path) -> None:
    assert list(opened(folder).missing(PASSAGES)) == list(PASSAGES)
    opened(folder).add_all([])
    assert not folder.exists()


def test_disk_error_is_a_storage_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(sqlite3, "connect", fail)
    with pytest.raises(StorageError, match=r"extractions.sqlite: database or disk is full"):
        opened(folder).add(extraction(PASSAGES[0]))
