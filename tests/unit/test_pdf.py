"""PDFs as pools of passages: pages, tables and passages; what is odd about files of others."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.call_schema import reply_from_json, reply_json
from kgqa.calls import Search
from kgqa.errors import DataError
from kgqa.extras.documents import pdf
from kgqa.types import Passage

PAGE = re.compile(r"page (\d+)")
GRID = [("GRID", (0, 0), (-1, -1), 0.5, (0, 0, 0))]
SENTENCE = "The river runs past the mill, and nobody counts the boats in summer. "
STATIONS = [["Station", "Flow"], ["Weir", "5.6"], ["Mill", "0.9"]]


def make(target: Path, story: Iterable[str | Sequence[Sequence[str]]], **settings: Any) -> Path:
    """Make a PDF of paragraphs and tables. "" starts a new page."""
    from reportlab.lib.pagesizes import A5
    from reportlab.lib.styles import getSampleStyleSheet
    from reportlab.platypus import PageBreak, Paragraph, SimpleDocTemplate, Spacer, Table

    style = getSampleStyleSheet()["Normal"]
    flowables: list[Any] = []
    for part in story:
        if isinstance(part, str):
            flowables += [Paragraph(part, style), Spacer(0, 10)] if part else [PageBreak()]
        else:
            flowables += [Table(part, style=GRID, repeatRows=1), Spacer(0, 10)]
    document = SimpleDocTemplate(
        str(target), pagesize=A5, encrypt=settings.get("encrypt"), invariant=1
    )
    document.build(flowables)
    return target


def read(file: Path) -> tuple[Passage, ...]:
    return pdf.read(file, file.stem, 250)


def places(passages: Iterable[Passage]) -> list[str]:
    return [passage.place for passage in passages if passage.place]


def test_document_has_pages_tables_and_passages(tmp_path: Path) -> None:
    file = make(
        tmp_path / "a.pdf", ["First page.", "", "Table 1: Flow", STATIONS, "After the table."]
    )
    document = read(file)
    assert [passage.place for passage in document] == [
        "page 1",
        "page 2",
        "table 1 page 2",
        "",
        "",
        "",
    ]
    markdown = "| Station | Flow |\n| --- | --- |\n| Weir | 5.6 |\n| Mill | 0.9 |"
    assert document[1].text == f"Table 1: Flow\n\n{markdown}\n\nAfter the table."
    assert document[2].text == f"Table 1: Flow\n{markdown}"
    assert [passage.text for passage in document[3:]] == [
        "First page.",
        "Table 1: Flow",
        "After the table.",
    ]


def test_table_over_a_page_break_has_one_header(tmp_path: Path) -> None:
    rows = [["Row", "Value"], *([f"r{number}", str(number)] for number in range(60))]
    document = read(make(tmp_path / "a.pdf", ["Table 4: Long", rows, "The end."]))
    (table,) = [passage for passage in document if passage.place.startswith("table")]
    assert table.place == "table 4 pages 1-3"
    lines = table.text.splitlines()
    assert (lines[0], lines[1], len(lines)) == ("Table 4: Long", "| Row | Value |", 63)
    assert [line.split(" | ")[1].strip(" |") for line in lines[3:]] == [
        str(number) for number in range(60)
    ]
    pages = [passage.text for passage in document if PAGE.fullmatch(passage.place)]
    assert all("| Row | Value |" in page for page in pages)
    # each passage is verbatim in one page
    story = [f"Paragraph {number}. {SENTENCE * 3}" for number in range(20)]
    document = read(make(tmp_path / "b.pdf", story))
    pages = [passage.text for passage in document if PAGE.fullmatch(passage.place)]
    ordinary = [passage.text for passage in document if not passage.place]
    assert len(pages) > 2
    assert all(any(text in page for page in pages) for text in ordinary)
    assert max(map(len, ordinary)) <= 250


@pytest.mark.parametrize(
    ("story", "tables"),
    [
        pytest.param(
            [STATIONS, "", "Words in between.", STATIONS],
            ["table 1 page 1", "table 2 page 2"],
            id="no captions",
        ),
        pytest.param(
            [
                STATIONS,
                "Words.",
                "Table 7: Late",
                STATIONS,
                "Words.",
                STATIONS,
                "More.",
                "Table 7: Again",
                STATIONS,
            ],
            ["table 1 page 1", "table 7 page 1", "table 8 page 1", "table 9 page 1"],
            id="captions",
        ),
    ],
)
def test_tables_have_the_numbers_of_their_captions(
    story: list[Any], tables: list[str], tmp_path: Path
) -> None:
    titles = places(read(make(tmp_path / "a.pdf", story)))
    assert [place for place in titles if place.startswith("table")] == tables


def test_columns_cells_frames_and_hyphens(tmp_path: Path) -> None:
    cells = read(make(tmp_path / "cells.pdf", [[["a|b", "c"], ["", "d"]]]))
    assert cells[1].text == "| a\\|b | c |\n| --- | --- |\n|  | d |"
    frame = read(
        make(
            tmp_path / "frame.pdf",
            [[["All of this stands in a frame."], ["And this."]], "Outside."],
        )
    )
    assert places(frame) == ["page 1"]
    assert "All of this stands in a frame." in frame[0].text
    hyphens = read(
        make(tmp_path / "hyphens.pdf", ["The light-<br/>house; its well-<br/>Known lamp was out."])
    )
    assert hyphens[0].text == "The lighthouse; its well- Known lamp was out."
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(str(tmp_path / "a.pdf"))
    for column, left in (("left", 60), ("right", 320)):
        for line in range(12):
            canvas.drawString(left, 700 - 14 * line, f"The {column} column has line {line} here.")
    # a table at the foot of the left column
    canvas.grid([60, 120, 180], [400, 420, 440])
    for place, text in enumerate(("a", "b", "c", "d")):
        canvas.drawString(65 + 60 * (place % 2), 425 - 20 * (place // 2), text)
    canvas.save()
    document = read(tmp_path / "a.pdf")
    lines = [
        f"The {column} column has line {line} here."
        for column in ("left", "right")
        for line in range(12)
    ]
    assert " ".join(
        document[0].text.replace("| a | b |\n| --- | --- |\n| c | d |", "").split()
    ) == " ".join(lines)
    assert places(document)[1:] == ["table 1 page 1"]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"no PDF at all", id="text"),
        pytest.param(b"%PDF-1.4\n%%EOF", id="no objects"),
    ],
)
def test_unreadable_pdf_is_rejected(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "broken.pdf").write_bytes(content)
    with pytest.raises(DataError, match=r"broken\.pdf: not a readable PDF"):
        read(tmp_path / "broken.pdf")


def test_pdf_with_password_is_rejected(tmp_path: Path) -> None:
    from reportlab.lib.pdfencrypt import StandardEncryption

    with pytest.raises(DataError, match=r"secret\.pdf: needs a password"):
        read(
            make(
                tmp_path / "secret.pdf",
                ["Hidden."],
                encrypt=StandardEncryption("open sesame", strength=128),
            )
        )
    locked = StandardEncryption("", ownerPassword="owner", canCopy=0)
    assert read(make(tmp_path / "a.pdf", ["Seen."], encrypt=locked))[0].text == "Seen."


def test_place_is_part_of_id_and_cached_replies() -> None:
    table, page = (
        Passage.of("a", "words", place="table 1 page 1"),
        Passage.of("a", "words", place="page 1"),
    )
    assert len({table.id, page.id, Passage.of("a", "words").id}) == 3
    assert reply_from_json(
        Search("words", 2), json.loads(json.dumps(reply_json((table, page))))
    ) == (table, page)
