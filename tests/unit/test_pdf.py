"""PDFs as pools of passages: pages, tables and passages; what is odd about files of others."""

from __future__ import annotations

import io
import json
import random
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.call_schema import reply_from_json, reply_json
from kgqa.calls import Search
from kgqa.datasets import pdf
from kgqa.errors import DataError
from kgqa.retrieval.passages import StoredPassages, store
from kgqa.types import Passage

PAGE = re.compile(r"page (\d+)")
TABLE = re.compile(r"table (\d+) pages? (\d+)(?:-(\d+))?")
GRID = [("GRID", (0, 0), (-1, -1), 0.5, (0, 0, 0))]
SENTENCE = "The river runs past the mill, and nobody counts the boats in summer. "
STATIONS = [["Station", "Flow"], ["Weir", "5.6"], ["Mill", "0.9"]]


def make(target: Path, story: Iterable[str | Sequence[Sequence[str]]], **settings: Any) -> Path:
    """A PDF of paragraphs and tables; "" begins a new page."""
    from reportlab.lib.pagesizes import A5
    from reportlab.lib.styles import getSampleStyleSheet
    from reportlab.platypus import PageBreak, Paragraph, SimpleDocTemplate, Spacer, Table

    style = getSampleStyleSheet()["Normal"]
    flowables: list[Any] = []
    for part in story:
        if isinstance(part, str):
            flowables += [Paragraph(part, style), Spacer(0, 10)] if part else [PageBreak()]
        else:
            flowables += [Table(part, style=GRID, repeatRows=settings.get("repeat", 1)), Spacer(0, 10)]
    document = SimpleDocTemplate(str(target), pagesize=A5, encrypt=settings.get("encrypt"), invariant=1)
    document.build(flowables)
    return target


def read(file: Path) -> tuple[Passage, ...]:
    return pdf.read(file, file.stem, 250)


def places(passages: Iterable[Passage]) -> list[str]:
    return [passage.place for passage in passages if passage.place]


def test_a_document_gives_pages_tables_and_passages_in_this_order(tmp_path: Path) -> None:
    file = make(tmp_path / "a.pdf", ["First page.", "", "Table 1: Flow", STATIONS, "After the table."])
    found = read(file)
    assert [passage.place for passage in found] == ["page 1", "page 2", "table 1 page 2", "", "", ""]
    markdown = "| Station | Flow |\n| --- | --- |\n| Weir | 5.6 |\n| Mill | 0.9 |"
    assert found[1].text == f"Table 1: Flow\n\n{markdown}\n\nAfter the table."
    assert found[2].text == f"Table 1: Flow\n{markdown}"
    assert [passage.text for passage in found[3:]] == ["First page.", "Table 1: Flow", "After the table."]


def test_every_passage_stands_verbatim_in_the_text_of_exactly_one_page(tmp_path: Path) -> None:
    story = [f"Paragraph {number}. {SENTENCE * 3}" for number in range(40)]
    found = read(make(tmp_path / "a.pdf", [*story, STATIONS, *story[:3]]))
    pages = [passage.text for passage in found if PAGE.fullmatch(passage.place)]
    ordinary = [passage.text for passage in found if not passage.place]
    assert len(pages) > 3
    assert all(any(text in page for page in pages) for text in ordinary)
    assert max(map(len, ordinary)) <= 250


def test_a_table_over_a_page_break_is_one_table_with_one_header(tmp_path: Path) -> None:
    rows = [["Row", "Value"], *([f"r{number}", str(number)] for number in range(60))]
    found = read(make(tmp_path / "a.pdf", ["Table 4: Long", rows, "The end."]))
    (table,) = [passage for passage in found if passage.place.startswith("table")]
    assert TABLE.fullmatch(table.place)
    assert table.place == "table 4 pages 1-3"
    lines = table.text.splitlines()
    assert (lines[0], lines[1], len(lines)) == ("Table 4: Long", "| Row | Value |", 63)
    assert [line.split(" | ")[1].strip(" |") for line in lines[3:]] == [str(number) for number in range(60)]
    assert all("| Row | Value |" in passage.text for passage in found if passage.place.startswith("page"))


def test_a_table_without_a_repeated_header_goes_on_too(tmp_path: Path) -> None:
    rows = [["Row", "Value"], *([f"r{number}", str(number)] for number in range(40))]
    found = read(make(tmp_path / "a.pdf", [rows], repeat=0))
    assert places(found) == ["page 1", "page 2", "table 1 pages 1-2"]
    assert len(found[2].text.splitlines()) == 42


def test_two_tables_on_either_side_of_a_page_break_stay_two(tmp_path: Path) -> None:
    apart = make(tmp_path / "a.pdf", [STATIONS, "", "Words in between.", STATIONS])
    numbered = make(tmp_path / "b.pdf", ["Table 1: One", STATIONS, "", "Table 2: Two", STATIONS])
    assert places(read(apart)) == ["page 1", "page 2", "table 1 page 1", "table 2 page 2"]
    assert places(read(numbered)) == ["page 1", "page 2", "table 1 page 1", "table 2 page 2"]


def test_numbers_of_tables_are_those_of_their_captions(tmp_path: Path) -> None:
    story = [STATIONS, "Words.", "Table 7: Late", STATIONS, "Words.", STATIONS, "More.", "Table 7: Again", STATIONS]
    assert places(read(make(tmp_path / "a.pdf", story)))[1:] == [
        "table 1 page 1",
        "table 7 page 1",
        "table 8 page 1",
        "table 9 page 1",
    ]


def test_a_bar_in_a_cell_is_escaped_and_an_empty_cell_stays(tmp_path: Path) -> None:
    found = read(make(tmp_path / "a.pdf", [[["a|b", "c"], ["", "d"]]]))
    assert found[1].text == "| a\\|b | c |\n| --- | --- |\n|  | d |"


def test_a_framed_paragraph_is_no_table(tmp_path: Path) -> None:
    found = read(make(tmp_path / "a.pdf", [[["All of this stands in a frame."], ["And this."]], "Outside."]))
    assert places(found) == ["page 1"]
    assert "All of this stands in a frame." in found[0].text


def test_a_word_cut_at_the_end_of_a_line_is_mended(tmp_path: Path) -> None:
    found = read(
        make(tmp_path / "a.pdf", ["The light-<br/>house stood on the hill; its well-<br/>Known lamp was out."])
    )
    assert found[0].text == "The lighthouse stood on the hill; its well- Known lamp was out."


@pytest.mark.parametrize("ruled", [False, True])
def test_columns_are_read_one_after_the_other(tmp_path: Path, ruled: bool) -> None:
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(str(tmp_path / "a.pdf"))
    for column, left in (("left", 60), ("right", 320)):
        for line in range(12):
            canvas.drawString(left, 700 - 14 * line, f"The {column} column has line {line} here.")
    if ruled:  # a table at the foot of the left column
        canvas.grid([60, 120, 180], [400, 420, 440])
        for place, text in enumerate(("a", "b", "c", "d")):
            canvas.drawString(65 + 60 * (place % 2), 425 - 20 * (place // 2), text)
    canvas.save()
    found = read(tmp_path / "a.pdf")
    lines = [f"The {column} column has line {line} here." for column in ("left", "right") for line in range(12)]
    assert " ".join(found[0].text.replace("| a | b |\n| --- | --- |\n| c | d |", "").split()) == " ".join(lines)
    assert places(found)[1:] == (["table 1 page 1"] if ruled else [])


def test_a_scanned_document_has_empty_pages_alone(tmp_path: Path) -> None:
    from reportlab.pdfgen.canvas import Canvas

    file = tmp_path / "scan.pdf"
    canvas = Canvas(str(file))
    for _ in range(2):
        canvas.drawImage(_picture(), 0, 0, 200, 200)
        canvas.showPage()
    canvas.save()
    assert [(passage.place, passage.text) for passage in read(file)] == [("page 1", ""), ("page 2", "")]


def _picture() -> Any:
    from PIL import Image
    from reportlab.lib.utils import ImageReader

    image = io.BytesIO()
    Image.new("L", (8, 8), 128).save(image, "PNG")
    image.seek(0)
    return ImageReader(image)


def test_a_document_with_a_password_is_refused(tmp_path: Path) -> None:
    from reportlab.lib.pdfencrypt import StandardEncryption

    file = make(tmp_path / "secret.pdf", ["Hidden."], encrypt=StandardEncryption("open sesame", strength=128))
    with pytest.raises(DataError, match=r"secret\.pdf: needs a password"):
        read(file)


def test_a_document_that_only_forbids_copying_is_read(tmp_path: Path) -> None:
    from reportlab.lib.pdfencrypt import StandardEncryption

    locked = StandardEncryption("", ownerPassword="owner", canCopy=0)
    assert read(make(tmp_path / "a.pdf", ["Seen."], encrypt=locked))[0].text == "Seen."


@pytest.mark.parametrize("content", [b"", b"no PDF at all", b"%PDF-1.4\n%%EOF"])
def test_what_is_no_pdf_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "broken.pdf"
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"broken\.pdf: not a readable PDF"):
        read(file)


def test_damaged_bytes_are_refused_in_a_line_or_read(tmp_path: Path) -> None:
    """60 files with 30 bytes changed each: none ends in another error."""
    whole = make(tmp_path / "whole.pdf", ["Some words.", STATIONS, "", SENTENCE * 5]).read_bytes()
    draw = random.Random(3)
    refused = []
    for number in range(60):
        damaged = bytearray(whole)
        for _ in range(30):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        file = tmp_path / f"{number}.pdf"
        file.write_bytes(damaged)
        try:
            read(file)
        except DataError as error:
            refused.append(str(error).startswith(f"{file}: "))
    assert all(refused)
    assert 0 < len(refused) < 60


def test_a_thousand_pages_are_read_in_a_minute_and_a_half(tmp_path: Path) -> None:
    """Made and read in 18 s on two busy cores; every fiftieth page has a table, and only those take long."""
    story: list[str | list[list[str]]] = []
    for page in range(1000):
        story += [f"Page {page}. {SENTENCE * 8}", *([STATIONS] if page % 50 == 0 else []), ""]
    file = make(tmp_path / "long.pdf", story[:-1])
    started = time.process_time()
    found = read(file)
    assert time.process_time() - started < 90
    assert sum(passage.place.startswith("page") for passage in found) == 1000
    assert sum(passage.place.startswith("table") for passage in found) == 20
    assert found[999].place == "page 1000"


def test_the_shipped_documents_have_these_pages_and_tables() -> None:
    counts = {}
    folder = Path(pdf.__file__).parents[1] / "demos" / "pdf"
    for file in sorted(folder.glob("*.pdf")):
        found = read(file)
        numbers = [match[1] for passage in found if (match := TABLE.fullmatch(passage.place))]
        counts[file.stem] = (sum(bool(PAGE.fullmatch(passage.place)) for passage in found), ",".join(numbers))
    assert counts == {
        "Ferry Guide": (5, "1,2,3"),
        "Garden Guide": (3, "1,2,3"),
        "Island Almanac": (3, "1,2"),
        "Observatory Handbook": (3, "1,2"),
        "River Survey": (4, "1,2,3"),
    }


def test_the_shipped_documents_are_what_the_script_makes_of_their_texts(tmp_path: Path) -> None:
    from scripts.make_pdfs import SHIPPED, TEXTS
    from scripts.make_pdfs import make as make_shipped

    for text in sorted(TEXTS.glob("*.md")):
        made = tmp_path / f"{text.stem}.pdf"
        make_shipped(text, made)
        assert [p.text for p in read(made)] == [p.text for p in read(SHIPPED / made.name)]
    assert len(json.loads((SHIPPED / "questions.jsonl").read_text(encoding="utf-8").splitlines()[0])["support"]) == 1


def test_a_place_is_part_of_the_id_and_survives_cache_and_index(tmp_path: Path) -> None:
    table, page = Passage.of("a", "words", place="table 1 page 1"), Passage.of("a", "words", place="page 1")
    assert len({table.id, page.id, Passage.of("a", "words").id}) == 3
    kept = json.loads(json.dumps(reply_json((table, page))))
    assert reply_from_json(Search("words", 2), kept) == (table, page)
    store([table, page], tmp_path, lambda _: None)
    stored = StoredPassages(tmp_path)
    assert list(stored) == [table, page]
    stored.close()
