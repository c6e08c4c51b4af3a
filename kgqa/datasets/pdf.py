"""PDF documents as passages: ordinary ones, and structural nodes for whole pages and tables (KGP §3).

- An ordinary passage has `place` "". It never crosses a page, and the text of its page contains it verbatim.
- A page node has `place` "page 3". Pages count from 1, and an empty page has the text "". Its text is the paragraphs
  and tables from top to bottom, with blank lines between them.
- A table node has `place` "table 2 page 3", or "table 2 pages 3-4" if it continues on the next page. Its number is the
  one in its caption ("Table 2: …"), or the next unused one. Its text is the caption and the table as Markdown.
  Passages are split from paragraphs only, not from tables.

A document gives its pages, its tables, then its ordinary passages, all in reading order. Their `title` is the
document's name. pdfium reads pages without rulings, 50 times as fast as pdfplumber, which reads those that may hold a
table. Neither reads text in pictures.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kgqa.datasets.splitting import split
from kgqa.errors import DataError
from kgqa.types import Passage
from kgqa.util.optional_deps import require_packages

CAPTION = re.compile(r"table\s+(\d+)\b", re.IGNORECASE)
HYPHENATED = re.compile(r"(?<=[^\W\d_])-\n(?=[a-z])")  # a word cut at the end of a line
WORD_BREAK = "\x02"  # pdfium's sign for a hyphen and the end of its line
MARGIN = 0.08  # of a page's height, above and below: running heads and page numbers
GAP = 0.5  # of a line's height, between two paragraphs
RULINGS = 8  # segments of drawn paths; a table of two cells has 10, a frame 5, a rule above and one below the text 4

log = logging.getLogger(__name__)

Row = tuple[str, ...]
Box = tuple[float, float, float, float]  # left, top, right, bottom; from the page's top left corner


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, or one page's part of a table."""

    text: str
    rows: tuple[Row, ...] = ()
    margin: int = 0  # -1: in the page's upper margin, 1: in its lower one


@dataclass(frozen=True, slots=True)
class TextLine:
    text: str
    box: Box


@dataclass
class PdfTable:
    number: int
    caption: str
    first_page: int
    last_page: int
    rows: list[Row] = field(default_factory=list)

    @property
    def place(self) -> str:
        if self.first_page == self.last_page:
            return f"table {self.number} page {self.first_page}"
        return f"table {self.number} pages {self.first_page}-{self.last_page}"

    @property
    def text(self) -> str:
        return "\n".join(filter(None, [self.caption, markdown(self.rows)]))


def read(file: Path, title: str, size: int) -> tuple[Passage, ...]:
    """Return page nodes, table nodes and ordinary passages of a file, see above. A scanned one has only empty pages.

    Raises:
        DataError: the file is no PDF, is broken, or needs a password.
    """
    page_blocks = [list(blocks) for blocks in pages(file)]
    tables = _tables(page_blocks)
    nodes = [Passage.of(title, _text(blocks), place=f"page {n}") for n, blocks in enumerate(page_blocks, start=1)]
    nodes += [Passage.of(title, table.text, place=table.place) for table in tables]
    runs = (run for blocks in page_blocks for run in _runs(blocks))
    return (*nodes, *(Passage.of(title, piece.text) for run in runs for piece in split(run, size)))


def _tables(page_blocks: list[list[Block]]) -> list[PdfTable]:
    """Return the tables of a document. The blocks of a continued table get its header."""
    tables: list[PdfTable] = []
    for page, blocks in enumerate(page_blocks, start=1):
        for place, block in enumerate(blocks):
            if not block.rows:
                continue
            caption, last = _caption(blocks, place), tables[-1] if tables else None
            if last and _continues(last, caption, page_blocks[page - 2 : page], place) and last.last_page == page - 1:
                more = block.rows[1:] if block.rows[0] == last.rows[0] else block.rows
                blocks[place] = Block(markdown([last.rows[0], *more]), block.rows)
                last.rows += more
                last.caption, last.last_page = last.caption or caption, page
            else:
                tables.append(PdfTable(_number(caption, tables), caption, page, page, list(block.rows)))
    return tables


def _continues(last: PdfTable, caption: str, both: Sequence[Sequence[Block]], place: int) -> bool:
    """Return whether a table of the second page continues the last one of the first page.

    It has as many columns, and only margins or its caption are between them.
    """
    before, after = both[0], both[-1]
    if len(last.rows[0]) != len(after[place].rows[0]) or (caption and _number(caption, ()) != last.number):
        return False
    body = next((block for block in reversed(before) if not block.margin), None)
    above = [block for block in after[:place] if not block.margin and block.text != caption]
    return bool(body and body.rows) and not above


def _caption(blocks: Sequence[Block], place: int) -> str:
    """Return the paragraph next to a table that starts with "Table 3": above it, or below it and not above another."""
    above = blocks[place - 1] if place else None
    below = blocks[place + 1] if place + 1 < len(blocks) else None
    if below and place + 2 < len(blocks) and blocks[place + 2].rows:
        below = None
    return next((block.text for block in (above, below) if block and not block.rows and CAPTION.match(block.text)), "")


def _number(caption: str, tables: Sequence[PdfTable]) -> int:
    """Return the number in the caption, or the next one if the caption has none or an earlier table has it."""
    taken = {table.number for table in tables}
    written = CAPTION.match(caption)
    if written and int(written[1]) not in taken:
        return int(written[1])
    return max(taken, default=0) + 1


def _text(blocks: Sequence[Block]) -> str:
    return "\n\n".join(block.text for block in blocks)


def _runs(blocks: Sequence[Block]) -> Iterator[str]:
    """Yield the paragraphs between tables."""
    run: list[Block] = []
    for block in blocks:
        if block.rows:
            yield _text(run)
            run = []
        else:
            run.append(block)
    yield _text(run)


def pages(file: Path) -> Iterator[list[Block]]:
    """Yield the blocks of each page, those of the margins first and last: files often draw page numbers first.

    Raises:
        DataError: the file is no PDF, is broken, or needs a password.
    """
    require_packages("pdf", "pypdfium2", "pdfplumber")
    import pypdfium2

    try:
        with closing(pypdfium2.PdfDocument(file)) as document:
            read = _read_tables(file, [n for n, page in enumerate(document) if _may_hold_table(page)])
            for number, page in enumerate(document):
                height = page.get_height()
                blocks = read.get(number) or [_paragraph(lines, height) for lines in _group(_lines(page))]
                yield sorted(blocks, key=lambda block: block.margin)
                page.close()
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            raise DataError(f"{file}: needs a password. Save it without one, or remove it from the folder") from None
        reason = str(error).rstrip(".")
        raise DataError(f"{file}: not a readable PDF: {reason}. Save it again, or remove it from the folder") from None
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror or error}. Name another folder") from None


def _read_tables(file: Path, numbers: Sequence[int]) -> dict[int, list[Block]]:
    """Return the blocks of these pages (from 0), as pdfplumber reads them. Log a warning for a damaged one."""
    import pdfplumber

    logging.getLogger("pdfminer").setLevel(logging.ERROR)  # it warns of every unusual color
    blocks: dict[int, list[Block]] = {}
    with ExitStack() as stack:
        document = None
        for number in numbers:
            try:
                document = document or stack.enter_context(pdfplumber.open(file, laparams={}))
                blocks[number] = _blocks(document.pages[number])
                document.pages[number].close()
            except Exception as error:  # noqa: BLE001, PERF203 - it raises anything where boxes or numbers are missing
                cause = str(error) or repr(error)
                log.warning("%s: page %d: no tables, it is damaged (%s)", file, number + 1, cause)
    return blocks


def markdown(rows: Sequence[Row]) -> str:
    """Return a table whose first row is its header; short rows are filled up."""
    columns = max(map(len, rows))
    filled = [[*row, *[""] * (columns - len(row))] for row in rows]
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in filled]
    return "\n".join([lines[0], f"|{' --- |' * columns}", *lines[1:]])


def _may_hold_table(page: Any) -> bool:
    from pypdfium2 import raw

    paths = page.get_objects(filter=[raw.FPDF_PAGEOBJ_PATH])
    return bool(page.get_rotation() or sum(raw.FPDFPath_CountSegments(path) for path in paths) >= RULINGS)


def _lines(page: Any) -> list[TextLine]:
    """Return the lines in the order in which the page draws them."""
    from pypdfium2 import raw

    with closing(page.get_textpage()) as text_page:
        characters = [chr(raw.FPDFText_GetUnicode(text_page, place)) for place in range(text_page.count_chars())]
        lines, start = [], 0
        for place, character in enumerate([*characters, "\n"]):
            if character in ("\r", "\n", WORD_BREAK):
                ends = [index for index in range(start, place) if not characters[index].isspace()]
                if ends:
                    boxes = [text_page.get_charbox(index, loose=True) for index in (ends[0], ends[-1])]
                    text = "".join(characters[start:place]) + ("-" if character == WORD_BREAK else "")
                    lines.append(TextLine(text, _upright(boxes, page.get_height())))
                start = place + 1
    return lines


def _upright(boxes: Sequence[Box], height: float) -> Box:
    """Return one box around those of pdfium, with y counted from the top of the page instead of the bottom."""
    left, bottom, right, top = zip(*boxes, strict=True)
    return min(left), height - max(top), max(right), height - min(bottom)


def _blocks(page: Any) -> list[Block]:
    """Return paragraphs in reading order, and each table before the first paragraph that is below it."""
    tables = [(table.bbox, rows) for table in page.find_tables() if (rows := _rows(table))]
    lines = [
        TextLine(each["text"], (each["x0"], each["top"], each["x1"], each["bottom"]))
        for each in page.textlinehorizontals
    ]
    free = [line for line in lines if not any(_inside(line.box, box) for box, _ in tables)]
    placed = [(_around(group), _paragraph(group, page.height)) for group in _group(free)]
    tops = [box[1] for box, block in placed if not block.margin]
    in_columns = tops != sorted(tops)
    for box, rows in sorted(tables, key=lambda group: group[0][1]):
        below = [other[1] >= box[3] - 1 and (_in_line(other, box) or not in_columns) for other, _ in placed]
        placed.insert(below.index(True) if any(below) else len(placed), (box, Block(markdown(rows), rows)))
    return [block for _, block in placed]


def _rows(table: Any) -> tuple[Row, ...]:
    """Return the rows with text, with single blanks in cells; empty for one column, which is a frame."""
    cells = [tuple(" ".join((cell or "").split()) for cell in row) for row in table.extract()]
    rows = tuple(row for row in cells if any(row))
    return rows if rows and max(map(len, rows)) > 1 else ()


def _group(lines: Sequence[TextLine]) -> Iterator[list[TextLine]]:
    """Yield the lines of each paragraph. A new one starts after a gap and where the text goes up."""
    group: list[TextLine] = []
    for line in lines:
        if group:
            _, above, _, end = group[-1].box
            if line.box[1] - end > GAP * (line.box[3] - line.box[1]) or line.box[1] < above - 1:
                yield group
                group = []
        if line.text.strip():
            group.append(line)
    if group:
        yield group


def _paragraph(lines: Sequence[TextLine], height: float) -> Block:
    text = HYPHENATED.sub("", "\n".join(line.text.strip() for line in lines))
    _, top, _, bottom = _around(lines)
    margin = -1 if bottom < MARGIN * height else int(top > (1 - MARGIN) * height)
    return Block(" ".join(text.split()), margin=margin)


def _around(lines: Sequence[TextLine]) -> Box:
    lefts, tops, rights, bottoms = zip(*(line.box for line in lines), strict=True)
    return min(lefts), min(tops), max(rights), max(bottoms)


def _inside(line: Box, box: Box) -> bool:
    """Return whether the middle of the line is in the box."""
    across, down = (line[0] + line[2]) / 2, (line[1] + line[3]) / 2
    return box[0] <= across <= box[2] and box[1] <= down <= box[3]


def _in_line(one: Box, other: Box) -> bool:
    """Return whether one is above or below the other, not wholly to its side."""
    return one[0] < other[2] and other[0] < one[2]
