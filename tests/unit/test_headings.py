"""What titles the passages of a person's documents: their headings, and their files' names where there are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgqa.datasets import headings
from kgqa.datasets.documents import KINDS, Documents
from kgqa.datasets.html_text import page
from tests.e2e.invented_island import write_docx, write_island


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
        ("Harbour minutes\n\nThe council met.", "Harbour minutes"),
        ("#hashtag and words.\n\nMore.", ""),
        ("", ""),
    ],
)
def test_of_markdown_its_highest_heading_in_plain_words(text: str, heading: str) -> None:
    assert headings.of_markdown(text) == heading


@pytest.mark.parametrize(
    ("text", "heading"),
    [
        ("Harbour minutes\n\nThe council met.", "Harbour minutes"),
        ("The council met.\n\nIt rained.", ""),
        ("Words that were wrapped\nin the middle of a sentence.\n\nMore.", ""),
        ("Alone", ""),
        ("long " * 20 + "\n\nMore.", ""),
    ],
)
def test_of_a_text_its_first_line_if_it_stands_alone_and_is_no_sentence(text: str, heading: str) -> None:
    assert headings.of_text(text) == heading


@pytest.mark.parametrize(
    ("html", "heading"),
    [
        ("<title>Towns</title><h2>A</h2><h1>Oustry <b>town</b></h1><h1>Second</h1><p>Words.", "Oustry town"),
        ("<head><title>Towns &amp; rivers</title></head><p>Words.", "Towns & rivers"),
        ("<h1><div>Oustry</div></h1>", "Oustry"),
        ("<script>'<h1>No</h1>'</script><p>Words.", ""),
        ("<svg><title>A picture</title></svg><p>Words.", ""),
        ("<h1>Oustry", "Oustry"),
    ],
)
def test_of_a_page_its_first_h1_else_its_title(html: str, heading: str) -> None:
    assert page(html).heading == heading


def test_every_passage_has_its_documents_heading_or_the_files_name(tmp_path: Path) -> None:
    pytest.importorskip("mammoth")
    read = Documents((write_island(tmp_path / "island"),), KINDS, 200)
    assert {passage.title for passage in read.passages()} == {
        "The lighthouse of Korrin Head", "vall", "Oustry", "Minutes of the harbour council of Sandrow", "survey"
    }  # fmt: skip
    named = {where.file.name for passage in read.passages() if (where := read.where(passage))}
    assert named == {"lighthouse.md", "vall.txt", "oustry.html", "minutes.docx", "survey.pdf"}


def test_documents_that_share_a_heading_are_told_apart_by_their_names(tmp_path: Path) -> None:
    pytest.importorskip("mammoth")
    for name in ("may", "june"):
        (tmp_path / f"{name}.md").write_text(f"# Notes\n\nWritten in {name}.", encoding="utf-8")
    write_docx(tmp_path / "plan.docx", ["Plan", "A mill is to be built."])
    read = Documents((tmp_path,), KINDS, 200)
    assert [passage.title for passage in read.passages()] == ["Notes (june)", "Notes (may)", "Plan"]


def test_another_way_to_title_passages_is_another_index(tmp_path: Path) -> None:
    """PDFs keep their names, and with them the identity of runs over them."""
    (tmp_path / "a.md").write_text("# A\n\nWords.", encoding="utf-8")
    assert Documents((tmp_path,), KINDS, 200).identity()["titles"] == "headings"
    write_island(tmp_path / "island")
    assert "titles" not in Documents((tmp_path / "island" / "survey.pdf",), KINDS, 200).identity()
