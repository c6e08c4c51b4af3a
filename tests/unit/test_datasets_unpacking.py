"""Archives as the authors publish them, made here in small: zip, tar, and HotpotQA's .tar.bz2 of .bz2 files."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import tarfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from kgqa.datasets import corpus
from kgqa.datasets.unpacking import unpack, unpack_abstracts
from kgqa.errors import DataError, StorageError
from kgqa.types import Passage

FILES = {"data_ids/dev.json": b"[1]", "data_ids/train.json": b"[2]" * 100_000, "__MACOSX/data_ids/dev.json": b"mac"}


def zipped(file: Path, files: Mapping[str, bytes] = FILES) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return file


def tarred(file: Path, files: Mapping[str, bytes], mode: str = "gz") -> Path:
    with tarfile.open(file, f"w:{mode}") as archive:  # type: ignore[call-overload]
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file


def shard(*records: object) -> bytes:
    return bz2.compress("".join(json.dumps(record) + "\n" for record in records).encode())


def abstract(title: str, *sentences: str) -> dict[str, object]:
    return {
        "id": "12", "url": f"wiki?curid={title}", "title": title, "text": list(sentences),
        "text_with_links": list(sentences), "charoffset": [], "charoffset_with_links": [],
    }  # fmt: skip


def nothing(count: int) -> None:
    """Progress that nobody looks at."""


@pytest.mark.parametrize("pack", [zipped, tarred], ids=["zip", "tgz"])
def test_members_are_found_in_whatever_folder_they_lie(tmp_path: Path, pack: object) -> None:
    archive = zipped(tmp_path / "a") if pack is zipped else tarred(tmp_path / "a", dict(list(FILES.items())[:2]))
    unpack(archive, ["train.json", "dev.json"], tmp_path / "out")
    assert {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()} == {
        "dev.json": b"[1]", "train.json": FILES["data_ids/train.json"],
    }  # fmt: skip


def test_members_that_are_not_wanted_stay_in_the_archive(tmp_path: Path) -> None:
    unpack(zipped(tmp_path / "a.zip"), ["dev.json"], tmp_path / "out")
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["dev.json"]


def test_a_missing_member_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no id_aliases.json, test.json in this archive"):
        unpack(zipped(tmp_path / "a.zip"), ["dev.json", "test.json", "id_aliases.json"], tmp_path / "out")


def test_a_broken_archive_is_refused_and_nothing_half_done_is_left(tmp_path: Path) -> None:
    whole = tarred(tmp_path / "whole.tgz", {"train.json": bytes(range(256)) * 2000}).read_bytes()
    (tmp_path / "cut.tgz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "page.zip").write_bytes(b"<html>no archive</html>")
    broken = bytearray(zipped(tmp_path / "whole.zip").read_bytes())
    broken[45:60] = b"\xff" * 15
    (tmp_path / "broken.zip").write_bytes(broken)
    shifted = bytearray(zipped(tmp_path / "whole.zip").read_bytes())
    shifted[-4] = 8  # of the place where its list begins: what is left of it lies before the file
    (tmp_path / "shifted.zip").write_bytes(shifted)
    for name in ("cut.tgz", "page.zip", "broken.zip", "shifted.zip"):
        with pytest.raises(DataError, match="broken archive"):
            unpack(tmp_path / name, ["train.json", "dev.json"], tmp_path / "out")
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


def test_a_member_that_nobody_wants_costs_no_time_whatever_it_unpacks_to(tmp_path: Path) -> None:
    """The tar is opened in a thousandth of the time that tarfile's stream takes for a bz2 file of zeros."""
    for mode in ("gz", "bz2", "xz"):
        archive = tarred(tmp_path / f"bomb.{mode}", {"big": bytes(60 << 20), "dev.json": b"[1]"}, mode)
        started = time.process_time()
        with pytest.raises(DataError, match=r"big: unpacks to more than 200 times its archive"):
            unpack(archive, ["dev.json"], tmp_path / "out")
        assert time.process_time() - started < 5


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file where a folder is wanted")
    with pytest.raises(StorageError, match="to=FOLDER"):
        unpack(zipped(tmp_path / "a.zip"), ["dev.json"], tmp_path / "out")


# HotpotQA's abstracts


def abstracts(folder: Path) -> Path:
    files = {
        "enwiki/AA/wiki_00.bz2": shard(abstract("Ann", "Ann is ", " a painter."), abstract("Bob &amp; Co.", "A shop.")),
        "enwiki/AB/wiki_00.bz2": shard(abstract("Empty")),
    }
    return tarred(folder / "abstracts.tar.bz2", files, "bz2")


def test_abstracts_become_one_corpus_in_the_archives_order(tmp_path: Path) -> None:
    counted: list[int] = []
    unpack_abstracts(abstracts(tmp_path), tmp_path / "corpus.jsonl.gz", counted.append)
    expected = [Passage.of("Ann", "Ann is a painter."), Passage.of("Bob & Co.", "A shop."), Passage.of("Empty", "")]
    assert list(corpus.read(tmp_path / "corpus.jsonl.gz")) == expected
    assert counted == [2, 1]


def test_an_abstract_is_the_same_passage_as_in_a_questions_context(tmp_path: Path) -> None:
    question = {"_id": "a", "question": "?", "answer": "x", "context": [["Ann", ["Ann is ", " a painter."]]]}
    (tmp_path / "q.json").write_text(json.dumps([question]))
    unpack_abstracts(abstracts(tmp_path), tmp_path / "corpus.jsonl.gz", nothing)
    assert next(corpus.read(tmp_path / "q.json")).id == next(corpus.read(tmp_path / "corpus.jsonl.gz")).id


def test_the_same_archive_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        unpack_abstracts(abstracts(tmp_path), tmp_path / name, nothing)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"enwiki/readme.txt": b"text"}, "it is not HotpotQA's"),
        ({"AA/wiki_00.bz2": b"no bz2"}, "AA/wiki_00.bz2: not a file of abstracts"),
        ({"AA/wiki_00.bz2": shard({"title": "Ann"})}, "AA/wiki_00.bz2: not a file of abstracts (KeyError('text'))"),
        ({"AA/wiki_00.bz2": shard(abstract("Ann", "x"))[:-8]}, "AA/wiki_00.bz2: not a file of abstracts"),
    ],
)
def test_another_archive_is_refused_and_leaves_no_corpus(tmp_path: Path, files: dict[str, bytes], said: str) -> None:
    archive = tarred(tmp_path / "other.tar.bz2", files, "bz2")
    with pytest.raises(DataError) as raised:
        unpack_abstracts(archive, tmp_path / "out" / "corpus.jsonl.gz", nothing)
    assert said in str(raised.value)
    assert not list((tmp_path / "out").iterdir())


def test_a_truncated_archive_of_abstracts_is_refused(tmp_path: Path) -> None:
    whole = abstracts(tmp_path).read_bytes()
    (tmp_path / "cut.tar.bz2").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="broken archive"):
        unpack_abstracts(tmp_path / "cut.tar.bz2", tmp_path / "out" / "corpus.jsonl.gz", nothing)
    assert not list((tmp_path / "out").iterdir())


def test_a_converted_corpus_is_gzip(tmp_path: Path) -> None:
    unpack_abstracts(abstracts(tmp_path), tmp_path / "corpus.jsonl.gz", nothing)
    first = gzip.open(tmp_path / "corpus.jsonl.gz", "rt", encoding="utf-8").readline()  # noqa: SIM115
    assert json.loads(first) == {"title": "Ann", "text": "Ann is a painter."}
