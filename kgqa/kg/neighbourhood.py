"""What surrounds an entity in a graph of triples."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from kgqa.types import Triple


def folded(name: str) -> str:
    """How entities are compared: without regard to case and blanks."""
    return " ".join(name.split()).casefold()


def entities(triples: Iterable[Triple]) -> dict[str, str]:
    """By what they are compared by, as first written."""
    names: dict[str, str] = {}
    for triple in triples:
        for name in (triple.head, triple.tail):
            names.setdefault(folded(name), name)
    return names


def neighbourhood(triples: Iterable[Triple], entity: str, hops: int) -> list[Triple]:
    """The triples that reach an entity within so many steps, nearest first, in whichever direction; else in order.

    Equal triples of two passages count once.
    """
    at = defaultdict[str, list[Triple]](list)
    for triple in dict.fromkeys(triples):
        for name in dict.fromkeys((folded(triple.head), folded(triple.tail))):
            at[name].append(triple)
    found: dict[tuple[str, str, str], Triple] = {}
    seen, edge = {folded(entity)}, [folded(entity)]
    for _ in range(hops):
        reached: dict[str, None] = {}
        for name in edge:
            for triple in at[name]:
                found.setdefault((folded(triple.head), folded(triple.relation), folded(triple.tail)), triple)
                reached |= dict.fromkeys((folded(triple.head), folded(triple.tail)))
        edge = [name for name in reached if name not in seen]
        seen |= reached.keys()
    return list(found.values())
