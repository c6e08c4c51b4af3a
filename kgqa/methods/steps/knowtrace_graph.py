"""KnowTrace's graph: how it is told to the model as paths, and the part of it that carries an answer (§3.3)."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

MAX_PATHS = 50  # not in the paper: a dense graph has more simple paths than a prompt can hold


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


def as_paths(graph: Sequence[Fact]) -> list[str]:
    """KG-to-Paths: triplets joined where the object of one is the subject of the next, `a → r → b → s → c`.

    Every path is simple and as long as it can be; every triplet is in one, many are in several, as the paper notes of
    its own (§4.5). At most `MAX_PATHS`, then what is left as paths of one triplet.
    """
    ends = {folded(fact.object) for fact in graph}
    starts = [fact for fact in graph if folded(fact.subject) not in ends]
    told: set[Fact] = set()
    paths: list[tuple[Fact, ...]] = []
    for start in (*starts, *graph):  # the graph itself for triplets that only a circle reaches
        if start not in told:
            for path in _walks(graph, (start,)):
                if len(paths) < MAX_PATHS:
                    paths.append(path)
                    told.update(path)
    paths += [(fact,) for fact in graph if fact not in told]
    return [" → ".join((path[0].subject, *(part for fact in path for part in fact[1:]))) for path in paths]


def _walks(graph: Sequence[Fact], path: tuple[Fact, ...]) -> Iterator[tuple[Fact, ...]]:
    seen = {folded(path[0].subject), *(folded(fact.object) for fact in path)}
    here = folded(path[-1].object)
    onward = [fact for fact in graph if folded(fact.subject) == here and folded(fact.object) not in seen]
    if not onward:
        yield path
    for fact in onward:
        yield from _walks(graph, (*path, fact))


def initial_entities(rounds: Sequence[tuple[Sequence[Pair], Sequence[Fact]]]) -> set[str]:
    """Entities that an exploration introduced itself, folded: those its graph did not hold (§3.2).

    rounds: by iteration the pairs explored and the triplets they brought.
    """
    known: set[str] = set()
    initial: set[str] = set()
    for pairs, facts in rounds:
        initial |= {folded(pair.entity) for pair in pairs} - known
        known |= {folded(entity) for fact in facts for entity in (fact.subject, fact.object)}
    return initial


def target_entities(graph: Collection[Fact], conclusion: str) -> set[str]:
    """Entities of the graph that occur in the thought or the answer as whole words, folded."""
    padded = f" {_words(conclusion)} "
    entities = {entity for fact in graph for entity in (fact.subject, fact.object)}
    return {folded(entity) for entity in entities if _words(entity) and f" {_words(entity)} " in padded}


def support(graph: Sequence[Fact], initial: Collection[str], targets: Collection[str]) -> list[Fact]:
    """The triplets on the way from each target entity back to the nearest initial entities, in the graph's order.

    Edges are walked in both directions. The paper does not say which way is taken where there are several: all
    shortest ones. A target from which no initial entity can be reached, or that is one, supports nothing.
    """
    distance = _distances(graph, initial)
    kept: set[Fact] = set()
    waiting = deque(target for target in targets if target in distance)
    seen = set(waiting)
    while waiting:
        here = waiting.popleft()
        for fact in graph:
            for one, other in ((fact.subject, fact.object), (fact.object, fact.subject)):
                if folded(one) == here and distance[folded(other)] == distance[here] - 1:
                    kept.add(fact)
                    if folded(other) not in seen:
                        seen.add(folded(other))
                        waiting.append(folded(other))
    return [fact for fact in graph if fact in kept]


def _distances(graph: Sequence[Fact], initial: Collection[str]) -> dict[str, int]:
    """Edges from each reachable entity to its nearest initial entity."""
    entities = {folded(entity) for fact in graph for entity in (fact.subject, fact.object)}
    distance = {entity: 0 for entity in initial if entity in entities}
    waiting = deque(distance)
    while waiting:
        here = waiting.popleft()
        for fact in graph:
            ends = (folded(fact.subject), folded(fact.object))
            for one, other in (ends, ends[::-1]):
                if one == here and other not in distance:
                    distance[other] = distance[here] + 1
                    waiting.append(other)
    return distance


def _words(text: str) -> str:
    return " ".join("".join(c if c.isalnum() else " " for c in text.casefold()).split())
