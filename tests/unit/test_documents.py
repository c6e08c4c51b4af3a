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


def test_word_file_gives_its_heading_and_its_blocks_in_order(tmp_path: Path) -> None:
    pytest.importorskip("mammoth")
    file = tmp_path / "a.docx"
    write_docx(file, ["A & B", "", "Second."])
    plain, whole = read_document(file), file.read_bytes()
    assert (plain.heading, plain.text) == ("", "A & B\n\nSecond.")
    styled = '<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>A'
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(tmp_path / "b.docx", "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name).decode().replace("<w:p><w:r><w:t>A", styled))
    assert read_document(tmp_path / "b.docx").heading == "A & B"
    for damaged in (b"no archive", b"PK\x03\x04 cut short", whole.replace(b"</w:document>", b"</w:dokument>")):
        file.write_bytes(damaged)
        with pytest.raises(DataError, match=r"a\.docx: not a readable DOCX \(.*\). Save it again as \.docx$"):
            read_document(file)


def test_markdown_and_html_give_heading_and_blocks() -> None:
    for text, heading in [
        ("Words before.\n\n## Part\n\n# The *old* [mill](a.md) of `Oustry` #\n", "The old mill of Oustry"),
        ("## Part one\n\n### A\n\n## Part two\n", "Part one"), ("The mill\n========\n\nWords.", "The mill"),
        ("- an item\n---\n\n| a |\n|---|\n", ""), ("```sh\n# no heading\n```\n\nWords.", ""),
        ("---\ntags: [a]\ntitle: 'Harbour minutes'\n---\n\n# Others\n", "Harbour minutes"),
        ("---\ntags: [a]\n---\n\n# The mill\n", "The mill"),
    ]:  # fmt: skip
        assert markdown_heading(text) == heading
    for html, heading, text in [
        ("<title>Towns</title><h1>Oustry <b>a</b></h1><h1>Two</h1>Words", "Oustry a", "Oustry a\n\nTwo\n\nWords"),
        ("<head><title>Towns &amp; rivers</title></head><p>Words.", "Towns & rivers", "Words."),
        ("<h1>Oustry", "Oustry", "Oustry"),
        ("<script>'<h1>No</h1>'</script><style>p {}</style><p>Words.", "", "Words."),
        ("<svg><title>A picture</title><svg></svg></svg><p>Words.", "", "Words."),
        ("<p>One <i>two</i>\n three<br>four</p><table><tr><td>a</td><td>b</table>", "", "One two three\n\nfour\n\na b"),
        ("<p>One</b></p></div><p>Two <unknown>three <", "", "One\n\nTwo\n\nthree <"),
        ("<p>one</p><![if !vml]><p>two</p><![nonsense]>", "", "one\n\ntwo"),
    ]:
        found = parse_html(html)
        assert (found.heading, found.text) == (heading, text)


def test_unreadable_files_are_skipped_with_their_reasons(tmp_path: Path) -> None:
    (tmp_path / "good.txt").write_text("Words.", encoding="utf-8")
    (tmp_path / "bad.txt").write_bytes(b"one\ntwo \xff")
    (tmp_path / "empty.md").write_text(" \n", encoding="utf-8")
    (tmp_path / "fake.pdf").write_bytes(b"no PDF")
    (tmp_path / "utf16.txt").write_bytes("One.\nTwo.".encode("utf-16-le"))
    read = documents(tmp_path)
    assert [passage.text for passage in read.passages()] == ["Words."]
    reasons = {file.name: str(reason) for file, reason in read.unreadable.items()}
    assert sorted(reasons) == ["bad.txt", "empty.md", "fake.pdf", "utf16.txt"]
    assert all(str(tmp_path / name) in reason for name, reason in reasons.items())
    assert "bad.txt:2: not UTF-8 (byte 0xff). Convert the file to UTF-8" in reasons["bad.txt"]
    assert "utf16.txt:1: not text " in reasons["utf16.txt"]
    assert [name for name, _ in read.identity()["files"]] == ["good"]
    (tmp_path / "good.txt").unlink()
    with pytest.raises(DataError, match=r"bad\.txt:2: not UTF-8"):
        _ = documents(tmp_path).collection


def test_shared_names_become_paths_and_a_place_without_documents_is_refused(tmp_path: Path) -> None:
    for place in ("a/notes.txt", "b/notes.txt", "b/other.txt"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text(place, encoding="utf-8")
    assert list(documents(tmp_path).files) == ["a/notes.txt", "b/notes.txt", "other"]
    several = documents(tmp_path / "a", tmp_path / "b", tmp_path / "b" / "other.txt").files
    assert list(several) == ["notes.txt", (tmp_path / "b" / "notes.txt").as_posix(), "other"]
    (tmp_path / "c").mkdir()
    for name in ("may", "june"):
        (tmp_path / "c" / f"{name}.md").write_text(f"# Notes\n\nWritten in {name}.", encoding="utf-8")
    assert [passage.title for passage in documents(tmp_path / "c").passages()] == ["Notes (june)", "Notes (may)"]
    (tmp_path / "x.odt").write_text("text", encoding="utf-8")
    for file in ("hidden/.a.txt", f"odd/{os.fsdecode(bytes([0xE9]))}.txt"):
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).write_text("text", encoding="utf-8")
    for place, message in [
        ("nowhere", r"nowhere: no such file or folder. Name your documents"),
        ("x.odt", r"x\.odt: file type not supported. Name \.txt, .* files or a folder"),
        ("hidden", r"hidden: no documents. Name \.txt"),
        ("odd", r"the file's name is not UTF-8. Rename it"),
    ]:
        with pytest.raises(DataError, match=message):
            _ = documents(tmp_path / place).files
