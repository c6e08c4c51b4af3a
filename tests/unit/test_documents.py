"""A user's own documents: which files are read, their texts and headings, and the places of passages."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from kgqa.datasets.document_text import markdown_heading, parse_html, read_document
from kgqa.datasets.documents import KINDS, Documents, Where
from kgqa.errors import DataError
from tests.e2e.invented_island import FILES, write_docx, write_island


def documents(*places: Path, size: int = 500) -> Documents:
    return Documents(places, KINDS, size)


def test_every_kind_is_read_and_each_passage_has_its_place_and_title(tmp_path: Path) -> None:
    pytest.importorskip("mammoth")
    island = write_island(tmp_path / "island")
    read = documents(island, size=200)
    assert sorted(file.name for file in read.files.values()) == sorted(FILES)
    assert not read.unreadable
    places = {str(read.where(passage)).removeprefix(f"{island}/") for passage in read.passages()}
    assert {"survey.pdf, page 1", "survey.pdf, page 2", "minutes.docx", "oustry.html", "vall.txt:3"} <= places
    (keepers,) = [passage for passage in read.passages() if "Piet Marlow" in passage.text]
    assert read.where(keepers, "Visitors may climb") == Where(island / "lighthouse.md", line=9)
    assert {passage.title for passage in read.passages()} == {
        "The lighthouse of Korrin Head", "vall", "Oustry", "minutes", "survey"
    }  # fmt: skip
    assert read.identity()["titles"] == "headings"
    assert "titles" not in documents(island / "survey.pdf").identity()


# Texts and headings of a file


def test_word_file_gives_its_heading_and_its_blocks_in_order(tmp_path: Path) -> None:
    pytest.importorskip("mammoth")
    write_docx(tmp_path / "plain.docx", ["A & B", "", "Second."])
    plain = read_document(tmp_path / "plain.docx")
    assert (plain.heading, plain.text) == ("", "A & B\n\nSecond.")
    styled = '<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>A'
    with zipfile.ZipFile(tmp_path / "plain.docx") as old, zipfile.ZipFile(tmp_path / "a.docx", "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name).decode().replace("<w:p><w:r><w:t>A", styled))
    assert read_document(tmp_path / "a.docx").heading == "A & B"


@pytest.mark.parametrize("damage", [b"no archive", b"PK\x03\x04 cut short", b"</w:dokument>"])
def test_broken_word_file_is_one_line(tmp_path: Path, damage: bytes) -> None:
    pytest.importorskip("mammoth")
    file = tmp_path / "a.docx"
    write_docx(file, ["text"])
    broken_xml = damage.startswith(b"<")
    file.write_bytes(file.read_bytes().replace(b"</w:document>", damage) if broken_xml else damage)
    with pytest.raises(DataError, match=r"a\.docx: not a readable DOCX \(.*\). Save it again as \.docx$"):
        read_document(file)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"one\ntwo \xff", r"a\.txt:2: not UTF-8 \(byte 0xff\). Convert the file to UTF-8"),
        ("One.\nTwo.".encode("utf-16-le"), r"a\.txt:1: not text .*\. Convert the file to UTF-8"),
    ],
)
def test_text_in_another_encoding_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(DataError, match=said):
        read_document(tmp_path / "a.txt")


@pytest.mark.parametrize(
    ("text", "heading"),
    [
        ("# The mill\n\nWords.", "The mill"),
        ("Words before.\n\n## Part\n\n# The *old* [mill](a.md) of `Oustry` #\n", "The old mill of Oustry"),
        ("## Part one\n\n### A\n\n## Part two\n", "Part one"),
        ("The mill\n========\n\nWords.", "The mill"),
        ("- an item\n---\n\n| a |\n|---|\n", ""),
        ("```sh\n# no heading\n```\n\nWords.", ""),
        ("---\ntags: [a]\ntitle: 'Harbour minutes'\n---\n\n# Others\n", "Harbour minutes"),
        ("---\ntags: [a]\n---\n\n# The mill\n", "The mill"),
        ("", ""),
    ],
)
def test_markdown_heading_is_the_first_of_the_highest_level(text: str, heading: str) -> None:
    assert markdown_heading(text) == heading


@pytest.mark.parametrize(
    ("html", "heading", "text"),
    [
        (
            "<title>Towns</title><h1>Oustry <b>town</b></h1><h1>Two</h1>Words",
            "Oustry town",
            "Oustry town\n\nTwo\n\nWords",
        ),
        ("<head><title>Towns &amp; rivers</title></head><p>Words.", "Towns & rivers", "Words."),
        ("<h1>Oustry", "Oustry", "Oustry"),
        ("<script>'<h1>No</h1>'</script><style>p {}</style><p>Words.", "", "Words."),
        ("<svg><title>A picture</title><svg></svg></svg><p>Words.", "", "Words."),
        ("<p>One <i>two</i>\n three<br>four</p><table><tr><td>a</td><td>b</table>", "", "One two three\n\nfour\n\na b"),
        ("<p>One</b></p></div><p>Two <unknown>three <", "", "One\n\nTwo\n\nthree <"),
        ("<p>one</p><![if !vml]><p>two</p><![nonsense]>", "", "one\n\ntwo"),
    ],
)
def test_html_gives_heading_and_blocks(html: str, heading: str, text: str) -> None:
    found = parse_html(html)
    assert (found.heading, found.text) == (heading, text)


# Files and their names


def test_unreadable_files_are_skipped_with_their_reasons(tmp_path: Path) -> None:
    (tmp_path / "good.txt").write_text("Words.", encoding="utf-8")
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe")
    (tmp_path / "empty.md").write_text(" \n", encoding="utf-8")
    (tmp_path / "fake.pdf").write_bytes(b"no PDF")
    read = documents(tmp_path)
    assert [passage.text for passage in read.passages()] == ["Words."]
    assert sorted(file.name for file in read.unreadable) == ["bad.txt", "empty.md", "fake.pdf"]
    assert all(str(file) in str(reason) for file, reason in read.unreadable.items())
    assert [name for name, _ in read.identity()["files"]] == ["good"]
    (tmp_path / "good.txt").unlink()
    with pytest.raises(DataError, match=r"bad\.txt:1: not UTF-8"):
        _ = documents(tmp_path).collection


def test_shared_names_become_paths_and_a_file_named_twice_is_read_once(tmp_path: Path) -> None:
    for place in ("a/notes.txt", "b/notes.txt", "b/other.txt"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text(place, encoding="utf-8")
    assert list(documents(tmp_path).files) == ["a/notes.txt", "b/notes.txt", "other"]
    several = documents(tmp_path / "a", tmp_path / "b", tmp_path / "b" / "other.txt").files
    assert list(several) == ["notes.txt", (tmp_path / "b" / "notes.txt").as_posix(), "other"]


def test_shared_headings_are_followed_by_the_names(tmp_path: Path) -> None:
    for name in ("may", "june"):
        (tmp_path / f"{name}.md").write_text(f"# Notes\n\nWritten in {name}.", encoding="utf-8")
    assert [passage.title for passage in documents(tmp_path).passages()] == ["Notes (june)", "Notes (may)"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", r"nowhere: no such file or folder. Name your documents"),
        ("a.odt", r"a\.odt: file type not supported. Name \.txt, .* files or a folder"),
        ("hidden", r"hidden: no documents. Name \.txt"),
        ("odd", r"the file's name is not UTF-8. Rename it"),
    ],
)
def test_place_without_documents_is_refused(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "a.odt").write_text("text", encoding="utf-8")
    for file in ("hidden/.a.txt", f"odd/{os.fsdecode(bytes([0xE9]))}.txt"):
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).write_text("text", encoding="utf-8")
    with pytest.raises(DataError, match=message):
        _ = documents(tmp_path / name).files
