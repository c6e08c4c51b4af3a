"""A part of a knowledge graph, as lines for a terminal and as a page with the graph that reports draw."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kgqa.report.page import QUESTION_SCRIPTS, page_parts
from kgqa.types import Triple

DRAWN = 150  # triples of a picture: more is a thicket


@dataclass(frozen=True, slots=True)
class GraphPart:
    """The part of a graph to show: all triples of a question, or the neighbors of an entity.

    `titles`: of passages, by their ids.
    """

    heading: str
    place: str  # where the triples come from
    triples: Sequence[Triple]
    titles: Mapping[str, str]

    @property
    def told(self) -> str:
        names = {name for triple in self.triples for name in (triple.head, triple.tail)}
        cut = f"; the first {DRAWN} are drawn" if len(self.triples) > DRAWN else ""
        return f"{len(self.triples):,} triples of {len(names):,} entities{cut}"


def part_lines(part: GraphPart) -> Iterator[str]:
    """Yield one line per triple, grouped by head, with the title of the triple's passage."""
    heads: dict[str, list[Triple]] = {}
    for triple in part.triples:
        heads.setdefault(triple.head, []).append(triple)
    for head, triples in heads.items():
        yield head
        for triple in triples:
            title = part.titles.get(triple.passage_id, triple.passage_id)
            yield f"    {triple.relation} → {triple.tail}   ({title})"


def part_page(part: GraphPart) -> Iterator[str]:
    """Yield the page's parts: one file that needs no network."""
    shown = part.triples[:DRAWN]
    drawn = [[each.head, each.relation, each.tail, each.passage_id] for each in shown]
    titles = {each.passage_id: part.titles.get(each.passage_id, each.passage_id) for each in shown}
    yield from page_parts(
        "neighbourhood.html.j2",
        ["report.css"],
        [*QUESTION_SCRIPTS, "neighbourhood.js"],
        part=part,
        triples=json.dumps({"triples": drawn, "titles": titles}),
    )
