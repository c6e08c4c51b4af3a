"""Pages and tables of documents (KGP §3): find the passages for the pages and tables that a question names.

The passages are those of PDF documents: `Passage.place` is "page 3", "table 2 page 3" or "table 2 pages 3-4".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kgqa.types import Passage

PLACE = re.compile(r"(?:table (\d+) )?pages? (\d+)(?:-(\d+))?")
NAMED = re.compile(r"\b(page|table)s?((?:[\s\d,–-]|\band\b|\bto\b)+)", re.IGNORECASE)
SPAN = re.compile(r"(\d+)(?:\s*(?:-|–|to)\s*(\d+))?", re.IGNORECASE)
# maximum length of a range such as "pages 3-5"; of a longer one only the first number counts
LONGEST_SPAN = 100


@dataclass(frozen=True, slots=True)
class PageOrTable:
    """A page, a table, or a table on a page. A table without a number is any table of its page."""

    page: int | None = None
    table: int | None = None
    any_table: bool = False


def text_passages(passages: Iterable[Passage]) -> tuple[Passage, ...]:
    """Return the passages of texts, without pages and tables."""
    return tuple(passage for passage in passages if not passage.place)


def pages_and_tables(passages: Iterable[Passage]) -> tuple[Passage, ...]:
    """Return the pages and tables in order."""
    return tuple(passage for passage in passages if passage.place)


def parse_nodes(reply: str) -> tuple[PageOrTable, ...]:
    """Parse the distinct pages and tables in a classifier reply; none for a question about content.

    A line can name a page ("page 3"), a table ("table 2"), a table on a page ("table 2 on page 3"), or "table on page
    3". "pages 1, 2 and 4" are three pages, and so are "pages 3-5". Lines without a number are ignored.
    """
    named_nodes = list[PageOrTable]()
    for line in reply.splitlines():
        numbers: dict[str, list[int]] = {"page": [], "table": []}
        for kind, listed in NAMED.findall(line):
            numbers[kind.lower()] += _numbers(listed)
        pages, tables = numbers["page"], numbers["table"]
        if tables:
            named_nodes += [
                PageOrTable(pages[0] if len(pages) == 1 else None, table) for table in tables
            ]
        else:
            named_nodes += [PageOrTable(page, any_table="table" in line.lower()) for page in pages]
    return tuple(dict.fromkeys(named_nodes))


def _numbers(listed: str) -> Iterator[int]:
    """Yield the numbers of a list such as "1, 3-5 and 7"."""
    for match in SPAN.finditer(listed):
        first, last = int(match[1]), int(match[2] or match[1])
        yield from range(first, last + 1) if first <= last < first + LONGEST_SPAN else (first,)


def find_nodes(
    named_nodes: Sequence[PageOrTable], passages: Iterable[Passage]
) -> tuple[Passage, ...]:
    """Return the passages of these pages and tables, in their order, then in the order of documents.

    "Table 1 on page 4" is the table with this number if it is on the page, otherwise the first table of the page.
    """
    documents: dict[str, list[Passage]] = {}
    for passage in passages:
        documents.setdefault(passage.title, []).append(passage)
    nodes = (
        _find_in_document(node, document) for node in named_nodes for document in documents.values()
    )
    return tuple(dict.fromkeys(passage for group in nodes for passage in group))


def _find_in_document(node: PageOrTable, document: Sequence[Passage]) -> list[Passage]:
    """Return the passages of one document for a page or table."""
    # on the page, if the node has one
    pages, tables = list[Passage](), list[tuple[int, Passage]]()
    for passage in document:
        if match := PLACE.fullmatch(passage.place):
            table, first, last = match.groups()
            if node.page is not None and not int(first) <= node.page <= int(last or first):
                continue
            if table:
                tables.append((int(table), passage))
            else:
                pages.append(passage)
    if node.table is None:
        return [passage for _, passage in tables] if node.any_table else pages
    numbered = [passage for number, passage in tables if number == node.table]
    if numbered or node.page is None or not node.table:
        return numbered
    return [passage for _, passage in tables[node.table - 1 : node.table]]
