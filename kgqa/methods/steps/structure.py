"""Pages and tables of documents (KGP §3): which passages are nodes for them, and which of them a question asks about.

The nodes are those of `datasets.pdf`: `Passage.place` is "page 3", "table 2 page 3" or "table 2 pages 3-4".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kgqa.types import Passage

PLACE = re.compile(r"(?:table (?P<table>\d+) pages? (?P<first>\d+)(?:-(?P<last>\d+))?|page (?P<page>\d+))")
TO = r"\s*(?:-|–|—|\bto\b|\bthrough\b)\s*"
NUMBERS = rf"\d+(?:{TO}\d+)?"
NAMED = re.compile(
    rf"\b(page|table)s?\s*(?:no\.?|number|#)?\s*({NUMBERS}(?:(?:\s*,\s*and|\s*,|\s+and)\s+{NUMBERS}\b)*)", re.IGNORECASE
)
SPAN = re.compile(rf"(\d+)(?:{TO}(\d+))?", re.IGNORECASE)
LONGEST_SPAN = 100  # pages or tables of "pages 3-5"; of a longer one its first alone


@dataclass(frozen=True, slots=True)
class Place:
    """A page, a table, or a table on a page; a table without a number is any on its page."""

    page: int | None = None
    table: int | None = None
    any_table: bool = False


def ordinary(passages: Iterable[Passage]) -> tuple[Passage, ...]:
    """Passages of a text, in order: neither pages nor tables."""
    return tuple(passage for passage in passages if not passage.place)


def structural(passages: Iterable[Passage]) -> tuple[Passage, ...]:
    """Pages and tables, in order."""
    return tuple(passage for passage in passages if passage.place)


def places_named(reply: str) -> tuple[Place, ...]:
    """The places that a classifying reply lists, a line for each, once each; empty: the question is about content.

    A line may name a page ("page 3"), a table ("table 2"), a table on a page ("table 2 on page 3"), or "table on page
    3"; "pages 1, 2 and 4" are three, and so are "pages 3-5". Whatever names no number is passed over.
    """
    places = []
    for line in reply.splitlines():
        named = [(kind.lower(), number) for kind, listed in NAMED.findall(line) for number in _numbers(listed)]
        pages = [number for kind, number in named if kind == "page"]
        tables = [number for kind, number in named if kind == "table"]
        if tables:
            places += [Place(pages[0] if len(pages) == 1 else None, table) for table in tables]
        elif pages:
            unnumbered = re.search(r"\btable\b", line, re.IGNORECASE) is not None
            places += [Place(page, any_table=unnumbered) for page in pages]
    return tuple(dict.fromkeys(places))


def _numbers(listed: str) -> Iterator[int]:
    """Those of "1, 3-5 and 7", in order."""
    for match in SPAN.finditer(listed):
        first, last = int(match[1]), int(match[2] or match[1])
        yield from range(first, last + 1) if first <= last < first + LONGEST_SPAN else (first,)


def nodes_at(places: Sequence[Place], passages: Iterable[Passage]) -> tuple[Passage, ...]:
    """The nodes at these places, place by place, in the documents' order; of several documents all that have them.

    A table and a page name the page's table of that number in the whole document, or where there is none, counting on
    that page alone: "table 1 on page 4" can be the document's third.
    """
    nodes = [(passage, match) for passage in passages if (match := PLACE.fullmatch(passage.place))]
    titles = list(dict.fromkeys(passage.title for passage, _ in nodes))
    named: dict[str, Passage] = {}
    for place in places:
        for title in titles:
            of_title = [(passage, match) for passage, match in nodes if passage.title == title]
            named |= {passage.id: passage for passage in _at(place, of_title)}
    return tuple(named.values())


def _at(place: Place, nodes: Sequence[tuple[Passage, re.Match[str]]]) -> list[Passage]:
    """The nodes of one document at a place."""
    tables = [(passage, match) for passage, match in nodes if match["table"]]
    if place.table is None and not place.any_table:
        return [passage for passage, match in nodes if match["page"] and int(match["page"]) == place.page]
    on_page = [(passage, match) for passage, match in tables if place.page is None or _reaches(match, place.page)]
    if place.table is None:
        return [passage for passage, _ in on_page]
    numbered = [passage for passage, match in on_page if int(match["table"]) == place.table]
    if numbered or place.page is None:
        return numbered
    return [passage for passage, _ in on_page[place.table - 1 : place.table]] if place.table else []


def _reaches(match: re.Match[str], page: int) -> bool:
    return int(match["first"]) <= page <= int(match["last"] or match["first"])
