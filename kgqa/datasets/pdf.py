"""PDF documents as pools of passages: ordinary passages, and structural nodes for whole pages and tables (KGP §3).

A document's `title` is its file's name without ".pdf" (two files of one name: their paths below the folder). What a
method can rely on, from a question's `passages` alone:

- An ordinary passage has `place` "". It never crosses a page, and stands verbatim in the text of the page it is from.
- A page node has `place` "page 3" (pages count from 1; every page has one, an empty page with the text ""). Its text
  is the whole page: paragraphs and tables from top to bottom, with blank lines between them.
- A table node has `place` "table 2 page 3", or "table 2 pages 3-4" where it goes on over a page break. Its number is
  the one in its caption ("Table 2: …"), else one more than the highest so far; no two tables of a document share one.
  Its text is the table as Markdown, the caption (if any) in the line above. Each page's text has its own part of the
  table; passages are split from the paragraphs alone, not from tables.

So, with the title, `page (\\d+)` matches page nodes fully and `table (\\d+) pages? (\\d+)(?:-(\\d+))?` table nodes, the
passages of page 3 are those of the title whose text is in that page node's text, and the first table *on* page 4 is
the first table node in the pool whose pages include 4. Documents come one after the other, each as its pages, its
tables, then its ordinary passages, all in reading order. `Question.type` is "structural" or "content" where questions
say so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kgqa.datasets.pdf_pages import Block, Row, markdown, pages
from kgqa.datasets.splitting import split
from kgqa.types import Passage

CAPTION = re.compile(r"table\s+(\d+)\b", re.IGNORECASE)


@dataclass
class PdfTable:
    number: int
    caption: str
    first_page: int
    last_page: int
    rows: list[Row] = field(default_factory=list)

    @property
    def place(self) -> str:
        several = self.last_page > self.first_page
        return (
            f"table {self.number} page{f's {self.first_page}-{self.last_page}' if several else f' {self.first_page}'}"
        )

    @property
    def text(self) -> str:
        return "\n".join(filter(None, [self.caption, markdown(self.rows)]))


def read(file: Path, title: str, size: int) -> tuple[Passage, ...]:
    """Page nodes, table nodes and ordinary passages of a file, see above; a scanned one gives empty pages alone.

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
    """Return the document's tables; a continued one's later blocks get its header in `found`."""
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
    """Return whether the table at a place of the second page is what is left of the one that ended on the first.

    It has as many columns, and nothing but margins is in between, or the caption again ("Table 3, continued").
    """
    before, after = both[0], both[-1]
    if len(last.rows[0]) != len(after[place].rows[0]) or (caption and _number(caption, ()) != last.number):
        return False
    body = next((block for block in reversed(before) if not block.margin), None)
    above = [block for block in after[:place] if not block.margin and block.text != caption]
    return bool(body and body.rows) and not above


def _caption(blocks: Sequence[Block], place: int) -> str:
    """Return the paragraph next to a table that begins as "Table 3": above it, else below it and not above another
    table.
    """
    above = blocks[place - 1] if place else None
    below = blocks[place + 1] if place + 1 < len(blocks) else None
    if below and place + 2 < len(blocks) and blocks[place + 2].rows:
        below = None
    return next((block.text for block in (above, below) if block and not block.rows and CAPTION.match(block.text)), "")


def _number(caption: str, tables: Sequence[PdfTable]) -> int:
    """Return what the caption says, unless an earlier table has that number; else the next one."""
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
