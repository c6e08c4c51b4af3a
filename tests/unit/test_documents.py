"""A person's own documents: which are read, what of a DOCX, what cannot be read, and where a passage stands."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from kgqa.datasets import docx
from kgqa.datasets.documents import KINDS, Documents, Where
from kgqa.errors import ConfigError, DataError
from tests.e2e.invented_island import FILES, write_docx, write_island


def documents(*places: Path, size: int = 500) -> Documents:
    return Documents(places, KINDS, size)


def test_every_kind_is_read_and_every_passage_has_its_place(tmp_path: Path) -> None:
    pytest.importorskip("mammoth")
    island = write_island(tmp_path / "island")
    read = documents(island, size=200)
    assert sorted(file.name for file in read.files.values()) == sorted(FILES)
    assert not read.unreadable
    places = {str(read.where(passage)).removeprefix(f"{island}/") for passage in read.passages()}
    assert {"survey.pdf, page 1", "survey.pdf, page 2", "minutes.docx", "oustry.html", "vall.txt:3"} <= places
    (keepers,) = [passage for passage in read.passages() if "Piet Marlow" in passage.text]
    assert read.where(keepers, "Visitors may climb") == Where(island / "lighthouse.md", line=9)


def test_a_word_file_gives_headings_paragraphs_and_cells_in_their_order(tmp_path: Path) -> None:
    pytest.importorskip("mammoth")
    file = tmp_path / "a.docx"
    write_docx(file, ["A & B", "", "Second."])
    assert "\n\n".join(docx.read(file).blocks) == "A & B\n\nSecond."


@pytest.mark.parametrize("content", [b"no archive", b"PK\x03\x04 cut short"])
def test_what_is_no_word_file_is_one_line(tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("mammoth")
    (tmp_path / "a.docx").write_bytes(content)
    with pytest.raises(
        DataError, match=r"a\.docx: no DOCX that can be read \(BadZipFile: .*\); save it anew as \.docx$"
    ):
        docx.read(tmp_path / "a.docx")


def test_an_archive_without_a_document_and_broken_xml_are_one_line(tmp_path: Path) -> None:
    pytest.importorskip("mammoth")
    with zipfile.ZipFile(tmp_path / "a.docx", "w") as packed:
        packed.writestr("hello.txt", "hello")
    write_docx(tmp_path / "b.docx", ["text"])
    whole = (tmp_path / "b.docx").read_bytes()
    (tmp_path / "b.docx").write_bytes(whole.replace(b"</w:document>", b"</w:dokument>"))
    for name in ("a.docx", "b.docx"):
        with pytest.raises(DataError, match=f"{name}: no DOCX that can be read"):
            docx.read(tmp_path / name)


def test_a_word_file_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mammoth")
    monkeypatch.setattr(docx, "LARGEST", 10_000)
    write_docx(tmp_path / "a.docx", ["a" * 20_000])
    with pytest.raises(DataError, match=r"a\.docx: unpacks to 2\d,\d+ bytes; take it out"):
        docx.read(tmp_path / "a.docx")


def test_without_mammoth_the_command_that_installs_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mammoth", None)
    write_docx(tmp_path / "a.docx", ["text"])
    with pytest.raises(ConfigError, match=r"\.docx files need mammoth; pip install 'kgqa\[documents\]'"):
        docx.read(tmp_path / "a.docx")


def test_what_cannot_be_read_is_left_out_and_told(tmp_path: Path) -> None:
    (tmp_path / "good.txt").write_text("Words.", encoding="utf-8")
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe")
    (tmp_path / "empty.md").write_text(" \n", encoding="utf-8")
    (tmp_path / "fake.pdf").write_bytes(b"no PDF")
    read = documents(tmp_path)
    assert [passage.text for passage in read.passages()] == ["Words."]
    assert sorted(file.name for file in read.unreadable) == ["bad.txt", "empty.md", "fake.pdf"]
    assert all(str(file) in reason for file, reason in read.unreadable.items())
    assert read.identity()["files"][0][0] == "good"
    assert len(read.identity()["files"]) == 1


def test_where_nothing_can_be_read_the_first_reason_is_raised(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match=r"bad\.txt:1: not UTF-8"):
        _ = documents(tmp_path).collection


def test_files_that_share_a_name_are_titled_by_their_paths_and_one_named_twice_is_read_once(tmp_path: Path) -> None:
    for place in ("a/notes.txt", "b/notes.txt", "b/other.txt"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text(place, encoding="utf-8")
    read = documents(tmp_path / "a", tmp_path / "b", tmp_path / "b" / "other.txt")
    assert len(read.files) == 3
    assert len(set(read.files)) == 3
    assert "other" in read.files
    assert set(documents(tmp_path).files) == {"a/notes.txt", "b/notes.txt", "other"}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", r"nowhere: no such file or folder; name your documents"),
        ("a.odt", r"a\.odt: no reader for such files; name \.txt, .* files or a folder"),
        ("hidden", r"hidden: no documents there; name \.txt"),
    ],
)
def test_a_place_without_documents_is_refused(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "a.odt").write_text("text", encoding="utf-8")
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / ".a.txt").write_text("text", encoding="utf-8")
    with pytest.raises(DataError, match=message):
        _ = documents(tmp_path / name).files


def test_a_file_that_changed_meanwhile_has_no_line(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("Words.", encoding="utf-8")
    read = documents(tmp_path)
    (passage,) = read.passages()
    file.write_text("Others.", encoding="utf-8")
    assert read.where(passage) == Where(file)
