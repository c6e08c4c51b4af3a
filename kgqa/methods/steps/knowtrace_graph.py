"""KnowTrace's graph: how it is told to the model as paths, and the part of it that carries an answer (§3.3)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from kgqa.scoring.normalisation import normalise

Naming = Callable[[str], str]  # gives entities that are one the same name


class Fact(NamedTuple):
    """A triplet of the graph."""

    subject: str
    relation: str
    object: str

    def __str__(self) -> str:
        return f"<{self.subject}; {self.relation}; {self.object}>"


class Pair(NamedTuple):
    """Where to expand the graph, and in which direction."""

    entity: str
    relation: str

    def __str__(self) -> str:
        return f"{self.entity} | {self.relation}"


def folded(entity: str) -> str:
    """Entities that differ in case or blanks only are one."""
    return " ".join(entity.casefold().split())


def normalised(entity: str) -> str:
    """Entities that scorers of answers would take for one are one: "The Gorm." and "gorm"."""
    return normalise(entity) or folded(entity)


def as_paths(graph: Sequence[Fact], name: Naming = normalised) -> list[str]:
    """KG-to-Paths: triplets joined at the entities they share, whichever end it is: `a → r → b ← s ← c`.

    Each triplet that no path tells yet begins one, which is then made as long as it can be without coming to an entity
    twice, over untold triplets first. So there are at most as many paths as triplets, every triplet is in one, and
    some are in several, as the paper notes of its own (§4.5).
    """
    told: set[Fact] = set()
    paths: list[str] = []
    for fact in graph:
        if fact not in told:
            path = _path_through(fact, graph, told, name)
            told.update(step.fact for step in path)
            paths.append(path[0].start + "".join(map(str, path)))
    return paths


class Step(NamedTuple):
    """A triplet on a path, walked from subject to object or, backwards, from object to subject."""

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


def _path_through(fact: Fact, graph: Sequence[Fact], told: Collection[Fact], name: Naming) -> deque[Step]:
    path = deque([Step(fact)])
    seen = {name(fact.subject), name(fact.object)}

    def onward(here: str, *, backwards: bool) -> Step | None:
        """A way to another entity: over an untold triplet if there is one, in the path's direction if there is one."""
        ways = (Step(fact, turned) for fact in graph for turned in (backwards, not backwards))
        open_ways = (way for way in ways if name(way.start) == name(here) and name(way.end) not in seen)
        return min(open_ways, key=lambda way: (way.fact in told, way.backwards != backwards), default=None)

    while way := onward(path[-1].end, backwards=False):
        seen.add(name(way.end))
        path.append(way)
    while way := onward(path[0].start, backwards=True):
        seen.add(name(way.end))
        path.appendleft(Step(way.fact, not way.backwards))
    return path


def initial_entities(rounds: Sequence[tuple[Sequence[Pair], Sequence[Fact]]], name: Naming = normalised) -> set[str]:
    """The names of entities that an exploration introduced itself: those its graph did not hold (§3.2).

    rounds: by iteration the pairs explored and the triplets they brought.
    """
    known: set[str] = set()
    initial: set[str] = set()
    for pairs, facts in rounds:
        initial |= {name(pair.entity) for pair in pairs} - known
        known |= {name(entity) for fact in facts for entity in (fact.subject, fact.object)}
    return initial


def target_entities(graph: Collection[Fact], conclusion: str, name: Naming = normalised) -> set[str]:
    """The names of the graph's entities that occur in the thought or the answer as whole words."""
    said = {wording: f" {wording(conclusion)} " for wording in (_words, name)}
    entities = {entity for fact in graph for entity in (fact.subject, fact.object)}

    def occurs(entity: str) -> bool:
        return any(wording(entity) and f" {wording(entity)} " in text for wording, text in said.items())

    return {name(entity) for entity in entities if occurs(entity)}


def support(
    graph: Sequence[Fact], initial: Collection[str], targets: Collection[str], name: Naming = normalised
) -> list[Fact]:
    """The triplets on the way from each target entity back to the nearest initial entities, in the graph's order.

    Edges are walked in both directions. The paper does not say which way is taken where there are several: all
    shortest ones. A target from which no initial entity can be reached, or that is one, supports nothing.
    """
    edges = [(name(fact.subject), name(fact.object), fact) for fact in graph]
    edges += [(end, start, fact) for start, end, fact in edges]
    distance = _distances(edges, initial)
    kept: set[Fact] = set()
    waiting = deque(target for target in targets if target in distance)
    seen = set(waiting)
    while waiting:
        here = waiting.popleft()
        for start, end, fact in edges:
            if start == here and distance[end] == distance[here] - 1:
                kept.add(fact)
                if end not in seen:
                    seen.add(end)
                    waiting.append(end)
    return [fact for fact in graph if fact in kept]


def _distances(edges: Sequence[tuple[str, str, Fact]], initial: Collection[str]) -> dict[str, int]:
    """Edges from each reachable entity to its nearest initial entity."""
    entities = {start for start, _, _ in edges}
    distance = {entity: 0 for entity in initial if entity in entities}
    waiting = deque(distance)
    while waiting:
        here = waiting.popleft()
        for start, end, _ in edges:
            if start == here and end not in distance:
                distance[end] = distance[here] + 1
                waiting.append(end)
    return distance


def _words(text: str) -> str:
    return " ".join("".join(c if c.isalnum() else " " for c in text.casefold()).split())
