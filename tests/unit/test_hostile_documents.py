"""Documents and archives that nobody vouches for: read in time that grows as they do, or refused in one line."""

from __future__ import annotations

import bz2
import io
import os
import random
import stat
import tarfile
import time
import zipfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from kgqa.datasets import unpacking
from kgqa.datasets.html_text import plain_text
from kgqa.datasets.splitting import LONG_LINE, Piece, _splitter, _windows, split
from kgqa.datasets.unpacking import unpack, unpack_abstracts
from kgqa.errors import DataError
from tests.unit.test_folder_dataset import ask
from tests.unit.test_pdf import SENTENCE

SIZE = 250


def seconds(work: Callable[[], object]) -> float:
    """Of this process alone, the least of three: neighbours on the machine do not count."""
    times = []
    for _ in range(3):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


LONG_LINES = {
    "no blanks": "a",
    "words": "word ",
    "Chinese": "漢字",
    "joined marks": "e\u0301",
    "sentences": "This is a sentence. ",
    "joiners": "\u200d",
    "blanks": " ",
}


@pytest.mark.parametrize("unit", LONG_LINES)
def test_a_line_four_times_as_long_takes_about_four_times_as_long(unit: str) -> None:
    text = LONG_LINES[unit] * (60_000 // len(LONG_LINES[unit]))
    once, four_times = seconds(lambda: split(text, SIZE)), seconds(lambda: split(text * 4, SIZE))
    assert four_times < 8 * once + 0.05  # quadratic: sixteen times


@pytest.mark.parametrize(
    "text", ["a" * 400_000, "漢字" * 66_667, "word " * 400_000], ids=["letters", "Chinese", "words"]
)
def test_long_lines_take_less_than_a_second(text: str) -> None:
    assert seconds(lambda: split(text, SIZE)) < 1


@pytest.mark.parametrize("unit", LONG_LINES)
def test_a_long_line_is_lost_nowhere(unit: str) -> None:
    text = "\n" + LONG_LINES[unit] * 30_000
    pieces = split(text, SIZE)
    assert all(len(piece.text) <= SIZE and text.startswith(piece.text, piece.start) for piece in pieces)
    assert all(before.end <= after.start for before, after in pairwise(pieces))
    assert "".join("".join(piece.text for piece in pieces).split()) == "".join(text.split())


def test_the_windows_of_sentences_give_the_pieces_of_the_whole() -> None:
    dice = random.Random(7)
    parts = ["Ann", "built", "a mill", "in 1,205", ". ", "! ", "? ", "\n", "\n\n", ", ", " ", " ", " (as Bob says) "]
    for _ in range(100):
        text = "".join(dice.choices(parts, k=3_000))
        assert list(_windows(text, SIZE)) == [Piece(*found) for found in _splitter(SIZE).chunk_indices(text)]


def test_texts_of_ordinary_lines_are_split_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kgqa.datasets.splitting._windows", lambda *_: pytest.fail("windows for an ordinary text"))
    assert split(f"{SENTENCE * (LONG_LINE // len(SENTENCE))}\n" * 10, SIZE)


MARKUP = ["<", "<div>", "<svg>", "&#x110000;", "<![CDATA[x", "<!-- ", "<!-- <p>", "<a ", "<a href='x", "<script>"]
MARKUP += ["<!x", "<![if>", "<?php ", "</", "</a", "x<b>y</b>", "&", "<!DOCTYPE [", "</style >", '<a b="', "<a><!--"]


@pytest.mark.parametrize("unit", MARKUP)
def test_hostile_markup_takes_time_in_proportion(unit: str) -> None:
    text = unit * (20_000 // len(unit))
    once, four_times = seconds(lambda: plain_text(text)), seconds(lambda: plain_text(text * 4))
    assert four_times < 8 * once + 0.05
    assert once < 1


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("a < b and c", "a < b and c"),
        ("<p>one</p><!-- never ended <p>two</p>", "one\n\n<!-- never ended\n\ntwo"),
        ("<p>one</p><![if !vml]><p>two</p>", "one\n\ntwo"),
        ("<p>one</p><![nonsense]><p>two</p>", "one\n\ntwo"),
        ("<p>one</p><a href='never ended>two</p>", "one\n\n<a href='never ended>two"),
        ("<svg><svg>unseen</svg><p>seen</p>", "seen"),
    ],
)
def test_markup_that_never_ends_is_text(html: str, text: str) -> None:
    assert plain_text(html) == text


def test_bytes_of_zero_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("One.\nTwo.".encode("utf-16-le"))
    with pytest.raises(DataError, match=r"a\.txt:1: not text .*; convert the file to UTF-8"):
        ask(tmp_path)


def test_a_file_name_that_is_not_utf8_is_one_line(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9.txt")).write_text("Some text.")
    with pytest.raises(DataError, match="the file's name is not UTF-8; rename it"):
        ask(tmp_path)


def tarball(file: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(file, "w:gz") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def zip_of(file: Path, name: str, content: bytes, attributes: int = 0, flags: int = 0) -> Path:
    member = zipfile.ZipInfo(name)
    member.external_attr, member.compress_type = attributes << 16, zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(member, content)
    raw = bytearray(file.read_bytes())
    raw[raw.rindex(b"PK\1\2") + 8] |= flags  # bit 1 of the directory's flags: encrypted
    raw[6] |= flags
    file.write_bytes(raw)
    return file


@pytest.mark.parametrize("name", ["../../dev.json", "/tmp/dev.json", "a/../../dev.json"])
def test_a_member_lies_in_the_folder_whatever_its_path(name: str, tmp_path: Path) -> None:
    for number, archive in enumerate(
        [tarball(tmp_path / "a.tgz", (tarfile.TarInfo(name), b"[1]")), zip_of(tmp_path / "a.zip", name, b"[1]")]
    ):
        folder = tmp_path / "deep" / "folder" / str(number)
        unpack(archive, ["dev.json"], folder)
        assert [file.read_bytes() for file in folder.iterdir()] == [b"[1]"]
    assert sorted(file.name for file in (tmp_path / "deep").iterdir()) == ["folder"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_are_passed_over(kind: bytes, tmp_path: Path) -> None:
    file = tarfile.TarInfo("real/dev.json")
    archive = tarball(tmp_path / "a.tgz", (link("dev.json", "/etc/passwd", kind), b""), (file, b"[1]"))
    unpack(archive, ["dev.json"], tmp_path / "out")
    assert (tmp_path / "out" / "dev.json").read_bytes() == b"[1]"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda file: zip_of(file, "dev.json", b"/etc/passwd", attributes=stat.S_IFLNK), "no dev.json in this archive"),
        (lambda file: zip_of(file, "dev.json", b"[1]", flags=1), "cannot be unpacked .*password"),
        (lambda file: zip_of(file, "dev.json", b"0" * 3_000_000), "unpacks to more than 200 times its archive"),
        (lambda file: tarball(file, (tarfile.TarInfo("dev.json"), b"0" * 3_000_000)), "unpacks to more than 200 times"),
    ],
    ids=["a link in a zip", "encrypted", "a zip bomb", "a tar bomb"],
)
def test_a_hostile_archive_is_one_line_and_nothing_is_left(
    make: Callable[[Path], Path], said: str, tmp_path: Path
) -> None:
    archive = make(tmp_path / "archive")
    with pytest.raises(DataError, match=said):
        unpack(archive, ["dev.json"], tmp_path / "out")
    assert not list((tmp_path / "out").glob("*"))


def test_a_bomb_among_the_abstracts_is_not_unpacked_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "LARGEST_SHARD", 1000)
    archive = tarball(tmp_path / "a.tgz", (tarfile.TarInfo("AA/wiki_00.bz2"), bz2.compress(b"{" * 1_000_000)))
    with pytest.raises(DataError, match=r"wiki_00\.bz2: unpacks to more than 1,000 bytes"):
        unpack_abstracts(archive, tmp_path / "out.gz", lambda _: None)
