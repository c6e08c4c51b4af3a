"""KnowTrace's graph: its form as paths, and the part of it that supports an answer (§3.3)."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import NamedTuple

from kgqa.methods.steps.replies import plain_words
from kgqa.scoring.normalisation import normalise


class Fact(NamedTuple):
    """A triple of the graph."""

    subject: str
    relation: str
    object: str

    def __str__(self) -> str:
        return f"<{self.subject}; {self.relation}; {self.object}>"


class Pair(NamedTuple):
    """An entity and a relation by which the graph is expanded."""

    entity: str
    relation: str

    def __str__(self) -> str:
        return f"{self.entity}; {self.relation}"


def name(entity: str) -> str:
    """Return the name as scorers normalize answers: "The Gorm." and "gorm" are one entity."""
    return normalise(entity) or " ".join(entity.casefold().split())


def format_paths(graph: Sequence[Fact]) -> list[str]:
    """Join triples at shared entities, in both directions: `a → r → b ← s ← c` (KG-to-Paths).

    Each triple that is not on a path yet starts one. A path is extended without repeating an entity, first over triples
    that are on no path. Every triple is on a path, and some are on several, as in the paper (§4.5).
    """
    used: set[Fact] = set()
    paths: list[str] = []
    for fact in graph:
        if fact not in used:
            path = _path_through(fact, graph, used)
            used.update(step.fact for step in path)
            paths.append(path[0].start + "".join(map(str, path)))
    return paths


class PathStep(NamedTuple):
    """A triple on a path, from subject to object or backwards."""

    fact: Fact
    backwards: bool = False

    @property
    def start(self) -> str:
        return self.fact.object if self.backwards else self.fact.subject

    @property
    def end(self) -> str:
        return self.fact.subject if self.backwards else self.fact.object

    def __str__(self) -> str:
        arrow = "←" if self.backwards else "→"
        return f" {arrow} {self.fact.relation} {arrow} {self.end}"


def _path_through(fact: Fact, graph: Sequence[Fact], used: Collection[Fact]) -> deque[PathStep]:
    path = deque([PathStep(fact)])
    seen = {name(fact.subject), name(fact.object)}

    def onward(here: str, *, backwards: bool) -> PathStep | None:
        """Return a step to a new entity, preferably over an unused triple and in the direction of the path."""
        ways = (PathStep(fact, turned) for fact in graph for turned in (backwards, not backwards))
        new_ways = (way for way in ways if name(way.start) == name(here) and name(way.end) not in seen)
        return min(new_ways, key=lambda way: (way.fact in used, way.backwards != backwards), default=None)

    while way := onward(path[-1].end, backwards=False):
        seen.add(name(way.end))
        path.append(way)
    while way := onward(path[0].start, backwards=True):
        seen.add(name(way.end))
        path.appendleft(PathStep(way.fact, not way.backwards))
    return path


def find_initial_entities(rounds: Sequence[tuple[Sequence[Pair], Sequence[Fact]]]) -> set[str]:
    """Return the names of entities that explorations introduced, which were not in the graph (§3.2).

    rounds: per iteration the explored pairs and their triples.
    """
    known, initial = set[str](), set[str]()
    for pairs, facts in rounds:
        initial |= {name(pair.entity) for pair in pairs} - known
        known |= {name(entity) for fact in facts for entity in (fact.subject, fact.object)}
    return initial


def find_target_entities(graph: Collection[Fact], conclusion: str) -> set[str]:
    """Return the names of the graph's entities that are in the thought or the answer as whole words."""
    found = set[str]()
    for form in (plain_words, name):
        text = f" {form(conclusion)} "
        entities = {entity for fact in graph for entity in (fact.subject, fact.object)}
        found |= {name(entity) for entity in entities if form(entity) and f" {form(entity)} " in text}
    return found


def support(graph: Sequence[Fact], initial: Collection[str], targets: Collection[str]) -> list[Fact]:
    """Return the triples on the shortest paths from target entities to the nearest initial entities, in graph order.

    Edges go in both directions. The paper does not specify which of several paths counts, here all shortest ones. A
    target without a path to an initial entity, or that is an initial entity, adds no triples.
    """
    edges = [(name(fact.subject), name(fact.object), fact) for fact in graph]
    edges += [(end, start, fact) for start, end, fact in edges]
    entities = {start for start, _, _ in edges}
    distance = {entity: 0 for entity in initial if entity in entities}  # to the nearest initial entity
    waiting = deque(distance)
    while waiting:
        here = waiting.popleft()
        further = dict.fromkeys(end for start, end, _ in edges if start == here and end not in distance)
        distance |= dict.fromkeys(further, distance[here] + 1)
        waiting.extend(further)
    supporting, on_path = set[Fact](), {*targets}
    for here in sorted(distance, key=lambda entity: -distance[entity]):
        if here in on_path:
            nearer = {fact: end for start, end, fact in edges if start == here and distance[end] < distance[here]}
            supporting.update(nearer)
            on_path.update(nearer.values())
    return [fact for fact in graph if fact in supporting]
