"""Read the pages of a PDF as paragraphs and ruled tables, in reading order.

pdfium reads pages without rulings, 50 times as fast as pdfplumber, which reads those that may hold a table. Neither
reads pictures of text: a scanned page gives nothing.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kgqa.errors import ConfigError, DataError

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
    """A paragraph, or what one page has of a table."""

    text: str
    rows: tuple[Row, ...] = ()
    margin: int = 0  # -1: in the page's upper margin, 1: in its lower one


@dataclass(frozen=True, slots=True)
class TextLine:
    text: str
    box: Box


def pages(file: Path) -> Iterator[list[Block]]:
    """Yield the blocks of each page, those of the margins first and last: pages are often drawn with their numbers
    first.

    Raises:
        DataError: the file is no PDF, is broken, or needs a password.
    """
    try:
        import pypdfium2
    except ImportError as error:
        raise ConfigError(f"{file}: PDFs need pypdfium2 and pdfplumber; pip install 'kgqa[pdf]'") from error
    try:
        with closing(pypdfium2.PdfDocument(file)) as document, _Rulings(file) as rulings:
            for number, page in enumerate(document):
                blocks = rulings.blocks(number) if _may_hold_table(page) else None
                yield sorted(_plain_blocks(page) if blocks is None else blocks, key=lambda block: block.margin)
                page.close()
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            raise DataError(f"{file}: needs a password; save it without one, or take it out of the folder") from None
        why = str(error).rstrip(".")
        raise DataError(f"{file}: not a readable PDF: {why}; save it anew, or take it out of the folder") from None
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror or error}; name another folder") from None


class _Rulings:
    """The same file in pdfplumber, which opens it at the first page with rulings."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._opened = file.open("rb")  # pdfplumber would leave it open where it fails

    def __enter__(self) -> _Rulings:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def blocks(self, number: int) -> list[Block] | None:
        """Return the blocks of the page at this place from 0; None where pdfplumber cannot read it, which is said."""
        try:
            page = self._document.pages[number]
            page_blocks = _blocks(page)
            page.close()
        except self._damages as error:
            log.warning("%s: page %d: no tables, it is damaged (%s)", self._file, number + 1, str(error) or repr(error))
            return None
        return page_blocks

    @cached_property
    def _document(self) -> Any:
        import pdfplumber

        logging.getLogger("pdfminer").setLevel(logging.ERROR)  # it warns of every unusual colour
        return pdfplumber.open(self._opened, laparams={})

    @cached_property
    def _damages(self) -> tuple[type[Exception], ...]:
        """Return what reading a damaged file ends in: pdfplumber trusts boxes and numbers to be there."""
        from pdfplumber.utils.exceptions import MalformedPDFException, PdfminerException

        trusted = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)
        return (MalformedPDFException, PdfminerException, *trusted)


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


def _plain_blocks(page: Any) -> list[Block]:
    return [_paragraph(lines, page.get_height()) for lines in _group(_lines(page))]


def _lines(page: Any) -> list[TextLine]:
    """Return the lines in the order in which the page draws them: columns, as a rule, one after the other."""
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
    """Return paragraphs in the layout analysis' reading order, and tables above the first paragraph that is below
    them.
    """
    tables = [(table.bbox, rows) for table in page.find_tables() if (rows := _rows(table))]
    lines = [TextLine(line["text"], _corners(line)) for line in page.textlinehorizontals]
    free = [line for line in lines if not any(_inside(line.box, box) for box, _ in tables)]
    placed = [(_around(group), _paragraph(group, page.height)) for group in _group(free)]
    tops = [box[1] for box, block in placed if not block.margin]
    in_columns = tops != sorted(tops)
    for box, rows in sorted(tables, key=lambda group: group[0][1]):
        below = [other[1] >= box[3] - 1 and (_in_line(other, box) or not in_columns) for other, _ in placed]
        placed.insert(below.index(True) if any(below) else len(placed), (box, Block(markdown(rows), rows)))
    return [block for _, block in placed]


def _rows(table: Any) -> tuple[Row, ...]:
    """Return cells with single blanks, rows without text left out; empty for what has one column only: a frame."""
    cells = [tuple(" ".join((cell or "").split()) for cell in row) for row in table.extract()]
    rows = tuple(row for row in cells if any(row))
    return rows if rows and max(map(len, rows)) > 1 else ()


def _group(lines: Sequence[TextLine]) -> Iterator[list[TextLine]]:
    """Yield lines of one paragraph each: a new one begins after a gap, and where the text goes up again."""
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


def _corners(line: Any) -> Box:
    return line["x0"], line["top"], line["x1"], line["bottom"]


def _inside(line: Box, box: Box) -> bool:
    """Return whether the middle of the line is in the box."""
    across, down = (line[0] + line[2]) / 2, (line[1] + line[3]) / 2
    return box[0] <= across <= box[2] and box[1] <= down <= box[3]


def _in_line(one: Box, other: Box) -> bool:
    """Return whether one is above or below the other, not wholly to its side."""
    return one[0] < other[2] and other[0] < one[2]
