"""Pages and tables of documents (KGP §3): find the passages for the pages and tables that a question names.

The passages are those of `datasets.pdf`: `Passage.place` is "page 3", "table 2 page 3" or "table 2 pages 3-4".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kgqa.types import Passage

NODE = re.compile(r"(?:table (?P<table>\d+) pages? (?P<first>\d+)(?:-(?P<last>\d+))?|page (?P<page>\d+))")
TO = r"\s*(?:-|–|—|\bto\b|\bthrough\b)\s*"
NUMBERS = rf"\d+(?:{TO}\d+)?"
NAMED = re.compile(
    rf"\b(page|table)s?\s*(?:no\.?|number|#)?\s*({NUMBERS}(?:(?:\s*,\s*and|\s*,|\s+and)\s+{NUMBERS}\b)*)", re.IGNORECASE
)
SPAN = re.compile(rf"(\d+)(?:{TO}(\d+))?", re.IGNORECASE)
LONGEST_SPAN = 100  # maximum length of a range such as "pages 3-5"; of a longer one only the first number counts


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
    named_nodes = []
    for line in reply.splitlines():
        named = [(kind.lower(), number) for kind, listed in NAMED.findall(line) for number in _numbers(listed)]
        pages = [number for kind, number in named if kind == "page"]
        tables = [number for kind, number in named if kind == "table"]
        if tables:
            named_nodes += [PageOrTable(pages[0] if len(pages) == 1 else None, table) for table in tables]
        elif pages:
            unnumbered = re.search(r"\btable\b", line, re.IGNORECASE) is not None
            named_nodes += [PageOrTable(page, any_table=unnumbered) for page in pages]
    return tuple(dict.fromkeys(named_nodes))


def _numbers(listed: str) -> Iterator[int]:
    """Yield the numbers of a list such as "1, 3-5 and 7"."""
    for match in SPAN.finditer(listed):
        first, last = int(match[1]), int(match[2] or match[1])
        yield from range(first, last + 1) if first <= last < first + LONGEST_SPAN else (first,)


def find_nodes(named_nodes: Sequence[PageOrTable], passages: Iterable[Passage]) -> tuple[Passage, ...]:
    """Return the passages of these pages and tables, in their order, then in the order of documents.

    "Table 1 on page 4" is the table with this number if it is on the page, otherwise the first table of the page.
    """
    nodes = [(passage, match) for passage in passages if (match := NODE.fullmatch(passage.place))]
    titles = list(dict.fromkeys(passage.title for passage, _ in nodes))
    named: dict[str, Passage] = {}
    for node in named_nodes:
        for title in titles:
            of_title = [(passage, match) for passage, match in nodes if passage.title == title]
            named |= {passage.id: passage for passage in _find_in_document(node, of_title)}
    return tuple(named.values())


def _find_in_document(node: PageOrTable, nodes: Sequence[tuple[Passage, re.Match[str]]]) -> list[Passage]:
    """Return the passages of one document for a page or table."""
    tables = [(passage, match) for passage, match in nodes if match["table"]]
    if node.table is None and not node.any_table:
        return [passage for passage, match in nodes if match["page"] and int(match["page"]) == node.page]
    on_page = [(passage, match) for passage, match in tables if node.page is None or _covers_page(match, node.page)]
    if node.table is None:
        return [passage for passage, _ in on_page]
    numbered = [passage for passage, match in on_page if int(match["table"]) == node.table]
    if numbered or node.page is None:
        return numbered
    return [passage for passage, _ in on_page[node.table - 1 : node.table]] if node.table else []


def _covers_page(match: re.Match[str], page: int) -> bool:
    return int(match["first"]) <= page <= int(match["last"] or match["first"])
