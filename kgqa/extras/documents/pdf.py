"""PDF documents as passages: ordinary ones, and structural nodes for whole pages and tables (KGP §3).

- An ordinary passage has `place` "". It never crosses a page, and the text of its page contains it verbatim.
- A page node has `place` "page 3". Pages count from 1, and an empty page has the text "". Its text is the paragraphs
  and tables from top to bottom, with blank lines between them.
- A table node has `place` "table 2 page 3", or "table 2 pages 3-4" if it continues on the next page. Its number is the
  one in its caption ("Table 2: …"), or the next unused one. Its text is the caption and the table as Markdown.
  Passages are split from paragraphs only, not from tables.

A document gives its pages, its tables, then its ordinary passages, all in reading order. Their `title` is the
document's name. pdfium reads the text, and pdfplumber the tables of pages with rulings. Neither reads text in pictures.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from kgqa.datasets.splitting import split
from kgqa.errors import DataError
from kgqa.types import Passage
from kgqa.util.optional_deps import require_packages

CAPTION = re.compile(r"table\s+(\d+)\b", re.IGNORECASE)
# a word cut at the end of a line
HYPHENATED = re.compile(r"(?<=[^\W\d_])-\n(?=[a-z])")
# \x02 is pdfium's sign for a hyphen and the end of its line
LINE = re.compile("([^\r\n\x02]+)(\x02?)")
# of a page's height, above and below: running heads and page numbers
MARGIN = 0.08
# of a line's height, between two paragraphs
GAP = 0.5
# segments of drawn paths; a table of two cells has 10, a frame 5, a rule above and one below the text 4
RULINGS = 8

log = logging.getLogger(__name__)

Row = tuple[str, ...]
# left, top, right, bottom; from the page's top left corner
Box = tuple[float, float, float, float]
Table = tuple[Box, Sequence[Row]]
TextLine = tuple[str, Box]


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, or one page's part of a table."""

    text: str
    rows: Sequence[Row] = ()
    # -1: in the page's upper margin, 1: in its lower one
    margin: int = 0


@dataclass
class PdfTable:
    number: int
    caption: str
    pages: list[int]
    rows: list[Row]

    @property
    def place(self) -> str:
        first, last = self.pages[0], self.pages[-1]
        return f"table {self.number} page{f' {first}' if first == last else f's {first}-{last}'}"


def read(file: Path, title: str, size: int) -> tuple[Passage, ...]:
    """Return page nodes, table nodes and ordinary passages of a file, see above. A scanned one has only empty pages.

    Raises:
        DataError: the file is no PDF, is broken, or needs a password.
    """
    pages = [*_read_pages(file)]
    tables = _join_tables(pages)
    nodes = [
        Passage.of(title, _join(blocks), place=f"page {page}")
        for page, blocks in enumerate(pages, start=1)
    ]
    for table in tables:
        text = "\n".join(filter(None, [table.caption, _format_table(table.rows)]))
        nodes.append(Passage.of(title, text, place=table.place))
    for blocks in pages:
        for is_table, run in groupby(blocks, key=lambda block: bool(block.rows)):
            if not is_table:
                nodes += [Passage.of(title, piece.text) for piece in split(_join([*run]), size)]
    return tuple(nodes)


def _join_tables(pages: Sequence[list[Block]]) -> list[PdfTable]:
    """Return the tables of a document. The blocks of a continued table get its header."""
    tables: list[PdfTable] = []
    for page, blocks in enumerate(pages, start=1):
        for position, block in enumerate(blocks):
            if not block.rows:
                continue
            caption = _find_caption(blocks, position)
            match = CAPTION.match(caption)
            number = int(match[1]) if match else 0
            above = [
                other for other in blocks[:position] if not other.margin and other.text != caption
            ]
            last = tables[-1] if tables else None
            if (
                last
                and not above
                and last.pages[-1] == page - 1
                and next(other.rows for other in reversed(pages[page - 2]) if not other.margin)
                and len(last.rows[0]) == len(block.rows[0])
                and (not caption or number == last.number)
            ):
                more = block.rows[1:] if block.rows[0] == last.rows[0] else block.rows
                blocks[position] = Block(_format_table([last.rows[0], *more]), block.rows)
                last.rows += more
                last.pages.append(page)
                last.caption = last.caption or caption
            else:
                numbers = {table.number for table in tables}
                if not match or number in numbers:
                    number = max(numbers, default=0) + 1
                tables.append(PdfTable(number, caption, [page], [*block.rows]))
    return tables


def _join(blocks: Sequence[Block]) -> str:
    return "\n\n".join(block.text for block in blocks)


def _find_caption(blocks: Sequence[Block], position: int) -> str:
    """Return the paragraph next to a table that starts with "Table 3": above it, or below it and not above another."""
    beside = [*blocks[max(position - 1, 0) : position], *blocks[position + 1 : position + 2]]
    if position + 2 < len(blocks) and blocks[position + 2].rows:
        beside.pop()
    return next(
        (block.text for block in beside if not block.rows and CAPTION.match(block.text)), ""
    )


def _read_pages(file: Path) -> Iterator[list[Block]]:
    """Yield the blocks of each page."""
    require_packages("pdf", "pypdfium2", "pdfplumber")
    import pypdfium2

    try:
        with closing(pypdfium2.PdfDocument(file)) as document:
            tables = _read_tables(
                file, [n for n, page in enumerate(document) if _may_hold_table(page)]
            )
            for number, page in enumerate(document):
                yield _arrange(_read_lines(page), tables.get(number, []), page.get_height())
                page.close()
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            raise DataError(
                f"{file}: needs a password. Save it without one, or remove it from the folder"
            ) from None
        reason = str(error).rstrip(".")
        raise DataError(
            f"{file}: not a readable PDF: {reason}. Save it again, or remove it from the folder"
        ) from None
    except OSError as error:
        raise DataError(
            f"{file}: cannot be read: {error.strerror or error}. Name another folder"
        ) from None


def _may_hold_table(page: Any) -> bool:
    from pypdfium2 import raw

    paths = page.get_objects(filter=[raw.FPDF_PAGEOBJ_PATH])
    return bool(
        page.get_rotation() or sum(raw.FPDFPath_CountSegments(path) for path in paths) >= RULINGS
    )


def _read_tables(file: Path, numbers: Sequence[int]) -> dict[int, list[Table]]:
    """Return the tables of these pages (from 0), from top to bottom. Log a warning for a damaged page."""
    import pdfplumber

    # it warns of every unusual color
    logging.getLogger("pdfminer").setLevel(logging.ERROR)
    tables: dict[int, list[Table]] = {}
    with ExitStack() as stack:
        document = None
        for number in numbers:
            try:
                document = document or stack.enter_context(pdfplumber.open(file))
                pairs = [
                    (table.bbox, _read_rows(table))
                    for table in document.pages[number].find_tables()
                ]
                tables[number] = sorted(
                    (table for table in pairs if table[1]), key=lambda table: table[0][1]
                )
                document.pages[number].close()
            except Exception as error:  # noqa: BLE001, PERF203 - it raises anything where boxes or numbers are missing
                cause = str(error) or repr(error)
                log.warning("%s: page %d: no tables, it is damaged (%s)", file, number + 1, cause)
    return tables


def _read_rows(table: Any) -> Sequence[Row]:
    """Return the rows with text, with single blanks in cells; empty for one column, which is a frame."""
    cells = [tuple(" ".join((cell or "").split()) for cell in row) for row in table.extract()]
    rows = [row for row in cells if any(row)]
    return rows if rows and max(map(len, rows)) > 1 else []


def _format_table(rows: Sequence[Row]) -> str:
    """Return a table as Markdown. Its first row is its header."""
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join([lines[0], f"|{' --- |' * len(rows[0])}", *lines[1:]])


def _read_lines(page: Any) -> list[TextLine]:
    """Return the lines with their boxes in the order in which the page draws them."""
    from pypdfium2 import raw

    height = page.get_height()
    with closing(page.get_textpage()) as text_page:
        numbers = (
            raw.FPDFText_GetUnicode(text_page, place) for place in range(text_page.count_chars())
        )
        lines = []
        for line in LINE.finditer("".join(map(chr, numbers))):
            if text := line[1].strip():
                start = line.start() + line[1].index(text)
                ends = (
                    text_page.get_charbox(place, loose=True)
                    for place in (start, start + len(text) - 1)
                )
                # y counted from the bottom of the page
                left, bottom, right, top = zip(*ends, strict=True)
                box = (min(left), height - max(top), max(right), height - min(bottom))
                lines.append((line[1] + ("-" if line[2] else ""), box))
    return lines


def _arrange(lines: Sequence[TextLine], tables: Sequence[Table], height: float) -> list[Block]:
    """Return paragraphs in reading order, and each table before the first paragraph that is below it.

    Those of the margins come first and last: files often draw page numbers first.
    """
    free = [line for line in lines if not any(_is_inside(line[1], box) for box, _ in tables)]
    paragraphs = (_paragraph(group, height) for group in _group(free))
    placed = sorted(paragraphs, key=lambda paragraph: paragraph[1].margin)
    tops = [box[1] for box, block in placed if not block.margin]
    in_columns = tops != sorted(tops)
    for box, rows in tables:
        below = [
            # in columns, a paragraph to the side of the table is neither above nor below it
            other[1] >= box[3] - 1 and (not in_columns or (other[0] < box[2] and box[0] < other[2]))
            for other, _ in placed
        ]
        place = below.index(True) if True in below else len(placed)
        placed.insert(place, (box, Block(_format_table(rows), rows)))
    return [block for _, block in placed]


def _group(lines: Sequence[TextLine]) -> Iterator[list[TextLine]]:
    """Yield the lines of each paragraph. A new one starts after a gap and where the text goes up."""
    group: list[TextLine] = []
    for text, box in lines:
        if group:
            _, above, _, end = group[-1][1]
            if box[1] - end > GAP * (box[3] - box[1]) or box[1] < above - 1:
                yield group
                group = []
        group.append((text, box))
    if group:
        yield group


def _paragraph(lines: Sequence[TextLine], height: float) -> tuple[Box, Block]:
    text = HYPHENATED.sub("", "\n".join(text.strip() for text, _ in lines))
    lefts, tops, rights, bottoms = zip(*(box for _, box in lines), strict=True)
    box = min(lefts), min(tops), max(rights), max(bottoms)
    margin = -1 if box[3] < MARGIN * height else int(box[1] > (1 - MARGIN) * height)
    return box, Block(" ".join(text.split()), margin=margin)


def _is_inside(line: Box, box: Box) -> bool:
    """Return whether the middle of the line is in the box."""
    across, down = (line[0] + line[2]) / 2, (line[1] + line[3]) / 2
    return box[0] <= across <= box[2] and box[1] <= down <= box[3]
