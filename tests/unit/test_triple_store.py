"""Triples on disk: resumed, shared, broken."""

from __future__ import annotations

import errno
import json
import os
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


def test_missing_passages_are_listed_once_in_order(folder: Path) -> None:
    store = opened(folder)
    store.add(extraction(PASSAGES[1]))
    assert store.missing([PASSAGES[2], PASSAGES[1], PASSAGES[0], PASSAGES[2]]) == [PASSAGES[2], PASSAGES[0]]


def test_a_failed_passage_has_no_triples_and_is_not_missing(folder: Path) -> None:
    store = opened(folder)
    store.add(extraction(PASSAGES[0], error="prompt too long"))
    assert store.triples(PASSAGES[0]) == ()
    assert store.missing(PASSAGES[:1]) == []
    assert opened(folder).extraction(PASSAGES[0]).error == "prompt too long"


def test_the_first_of_two_extractions_wins(folder: Path) -> None:
    opened(folder).add(extraction(PASSAGES[0], "first"))
    opened(folder).add(extraction(PASSAGES[0], "second"))
    assert opened(folder).triples(PASSAGES[0])[0].tail == "first"


def test_a_store_sees_what_another_adds_later(folder: Path) -> None:
    store, other = opened(folder), opened(folder)
    assert store.missing(PASSAGES) == list(PASSAGES)
    other.add(extraction(PASSAGES[2]))
    assert store.triples(PASSAGES[2])


@pytest.mark.parametrize("kept", [1, 40])
def test_a_line_cut_short_by_a_kill_is_ignored_and_replaced(folder: Path, kept: int) -> None:
    store = opened(folder)
    store.add(extraction(PASSAGES[0]))
    whole = store.file.read_bytes()
    store.file.write_bytes(whole + whole[:kept])
    again = opened(folder)
    assert again.missing(PASSAGES) == list(PASSAGES[1:])
    again.add(extraction(PASSAGES[1]))
    assert opened(folder).missing(PASSAGES) == [PASSAGES[2]]
    assert opened(folder).file.read_bytes().count(b"\n") == 2


def test_a_file_that_holds_only_half_a_line_is_as_good_as_empty(folder: Path) -> None:
    store = opened(folder)
    store.add(extraction(PASSAGES[0]))
    store.file.write_bytes(store.file.read_bytes()[:30])
    again = opened(folder)
    again.add(extraction(PASSAGES[1]))
    assert opened(folder).missing(PASSAGES) == [PASSAGES[0], PASSAGES[2]]


@pytest.mark.parametrize("broken", [b"{]", b"\xff\xfe", b'{"passage_id": "p"}', b"[1]"])
def test_a_corrupt_line_in_the_middle_is_named(folder: Path, broken: bytes) -> None:
    store = opened(folder)
    for passage in PASSAGES:
        store.add(extraction(passage))
    first, _, third = store.file.read_bytes().splitlines(keepends=True)
    store.file.write_bytes(first + broken + b"\n" + third)
    again = opened(folder)
    for _ in range(2):  # the second try names the same line
        with pytest.raises(DataError, match=r"extractions.jsonl:2: not an extraction"):
            again.triples(PASSAGES[2])


def test_no_flipped_bit_changes_triples_in_silence(folder: Path) -> None:
    store = opened(folder)
    store.add(extraction(PASSAGES[0]))
    whole, said = store.file.read_bytes(), store.extraction(PASSAGES[0])
    refused = 0
    for place in range(8 * (len(whole) - 1)):  # without its last line end it is unfinished, and extracted again
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        store.file.write_bytes(flipped)
        try:
            assert opened(folder).missing(PASSAGES[:1]) or opened(folder).extraction(PASSAGES[0]) == said
        except DataError:
            refused += 1
    assert refused > 4 * len(whole)


def test_lines_without_a_checksum_are_read_as_they_are(folder: Path) -> None:
    store = opened(folder)
    store.add(extraction(PASSAGES[0]))
    line = json.loads(store.file.read_bytes())
    assert line.pop("checksum") > 0
    store.file.write_bytes(json.dumps(line).encode() + b"\n")
    assert opened(folder).extraction(PASSAGES[0]) == store.extraction(PASSAGES[0])


def test_another_configuration_in_the_folder_is_refused_by_key(folder: Path) -> None:
    opened(folder).add(extraction(PASSAGES[0]))
    with pytest.raises(DataError, match=r"manifest.json: built with other settings \(model, seed\)"):
        TripleStore(folder, {"model": "large", "max_tokens": 512, "seed": 1}).triples(PASSAGES[0])


def test_a_broken_manifest_is_named(folder: Path) -> None:
    opened(folder).add(extraction(PASSAGES[0]))
    (folder / "manifest.json").write_text("{")
    with pytest.raises(DataError, match=r"manifest.json: not JSON"):
        opened(folder).triples(PASSAGES[0])


def test_the_folder_depends_on_every_setting(tmp_path: Path) -> None:
    assert store_folder(tmp_path, "demo", {"b": 1, "a": 2}) == store_folder(tmp_path, "demo", {"a": 2, "b": 1})
    assert store_folder(tmp_path, "demo", {"a": 2}) != store_folder(tmp_path, "demo", {"a": 3})
    assert store_folder(tmp_path, "demo", {}).parent == tmp_path / "demo"


def test_any_completion_survives_the_disk(folder: Path) -> None:
    odd = "line\nbreak \u2028 \udc80 \x00 ⟨T0; is; é⟩"
    opened(folder).add(Extraction(PASSAGES[0].id, "T0", odd))
    assert opened(folder).extraction(PASSAGES[0]).completion == odd


def test_a_full_disk_is_a_storage_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, line: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StorageError, match=r"extractions.jsonl: No space left on device"):
        opened(folder).add(extraction(PASSAGES[0]))


def test_a_line_the_disk_took_only_half_of_is_a_storage_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, line: write(descriptor, line[:20]))
    with pytest.raises(StorageError, match="the disk is full"):
        opened(folder).add(extraction(PASSAGES[0]))
    monkeypatch.undo()
    opened(folder).add(extraction(PASSAGES[1]))
    assert opened(folder).missing(PASSAGES[:2]) == [PASSAGES[0]]


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
    assert opened(folder).missing(passages) == []
    assert opened(folder).counts(passages)["triples"] == 200


def written(folder: Path, *extractions: Extraction) -> bytes:
    """The file after adding in this order and arranging."""
    opened(folder).add_all(extractions)
    opened(folder).arrange()
    return (folder / "extractions.jsonl").read_bytes()


def test_arranging_makes_equal_contents_equal_bytes(tmp_path: Path) -> None:
    first, second, third = map(extraction, PASSAGES)
    together = written(tmp_path / "a", first, second, third)
    one_by_one = [written(tmp_path / "b", each) for each in (third, first, second)][-1]
    assert together == one_by_one
    ids = [json.loads(line)["passage_id"] for line in together.splitlines()]
    assert ids == sorted(passage.id for passage in PASSAGES)


def test_arranging_keeps_the_first_of_each_passage_and_no_unfinished_line(folder: Path) -> None:
    opened(folder).add_all(map(extraction, PASSAGES))
    opened(folder).add(extraction(PASSAGES[1], "later"))
    with (folder / "extractions.jsonl").open("ab") as file:
        file.write(b'{"passage_id": ')
    opened(folder).arrange()
    assert len((folder / "extractions.jsonl").read_bytes().splitlines()) == len(PASSAGES)
    assert opened(folder).triples(PASSAGES[1])[0].tail == "x"


def test_arranging_again_does_not_touch_the_file(folder: Path) -> None:
    written(folder, *map(extraction, PASSAGES))
    before = (folder / "extractions.jsonl").stat()
    opened(folder).arrange()
    assert (folder / "extractions.jsonl").stat().st_mtime_ns == before.st_mtime_ns


def test_arranging_nothing_leaves_nothing(folder: Path) -> None:
    opened(folder).arrange()
    assert not folder.exists()


def test_a_store_that_is_open_follows_an_arrangement(folder: Path) -> None:
    by_id = sorted(PASSAGES, key=lambda passage: passage.id, reverse=True)
    store = opened(folder)
    store.add_all(map(extraction, by_id[:2]))
    assert store.extraction(by_id[0]).passage_id == by_id[0].id
    opened(folder).arrange()
    store.add(extraction(by_id[2]))
    assert [store.extraction(passage).passage_id for passage in by_id] == [passage.id for passage in by_id]
    assert store.missing(PASSAGES) == []


def test_a_store_that_is_open_follows_arrangements_whose_files_may_share_a_number(folder: Path) -> None:
    """A disk may give the file of the second one the inode of that which the first replaced."""
    passages = sorted(
        (Passage.of(f"{number:02}", "text") for number in range(40)), key=lambda each: each.id, reverse=True
    )
    store = opened(folder)
    for some in (passages[:1], *(passages[place : place + 3] for place in range(1, 37, 3))):
        opened(folder).add_all(map(extraction, some))
        assert store.missing(some) == []
        for _ in range(2):
            opened(folder).arrange()
            (folder / "extractions.jsonl").touch()
            opened(folder).add(extraction(Passage.of(f"more {some[0].id}", "text")))
        assert [store.extraction(each).passage_id for each in some] == [each.id for each in some]


def arrange_often(folder: Path) -> None:
    for _ in range(60):
        opened(folder).arrange()


def test_what_others_add_while_a_file_is_arranged_is_not_lost(folder: Path) -> None:
    with ProcessPoolExecutor(3, mp_context=get_context("spawn")) as pool:
        added = [pool.submit(add_many, folder, writer) for writer in (1, 2)]
        arranged = pool.submit(arrange_often, folder)
        for future in (*added, arranged):
            future.result()
    passages = [Passage.of(f"{writer}-{number}", "text") for writer in (1, 2) for number in range(100)]
    assert opened(folder).missing(passages) == []
