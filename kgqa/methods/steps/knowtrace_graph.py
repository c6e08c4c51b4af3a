"""KnowTrace's replies and the graph of their triples: its form as paths, and the part that supports an answer (§3.3).

Replies have the formats of its prompts, of the paper's Table 5, and similar ones. Any string is accepted. Malformed
pairs and triples are counted.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kgqa.methods.steps.replies import (
    AFTER,
    ANSWER,
    BEFORE,
    INLINE_ANSWER,
    MARKS,
    find_answer,
    plain_words,
    read_triple_lines,
    unwrap,
)
from kgqa.scoring.normalization import normalize

# entity and relation; in lists also the last ones
BETWEEN = (r"\|", r"\s:\s", ";", r":\s(?!.*:\s)", r"\s(?:[-–—]+>?|→)\s")
ONE_COMMA = r"\A([^,]+),\s([^,]+)\Z"  # names can contain commas
EXPLORE = re.compile(r"^\W*explore\W*?:", re.IGNORECASE)
ANSWER_LINE = re.compile(rf"{BEFORE}{ANSWER}{AFTER}", re.MULTILINE | re.IGNORECASE)
THOUGHT_LABEL = re.compile(rf"\A\W*Thought{AFTER}", re.IGNORECASE)


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


@dataclass(frozen=True, slots=True)
class Exploration:
    """The reply to the question whether the graph is sufficient."""

    sufficient: bool | None  # None: neither yes nor no
    thought: str = ""
    answer: str = ""
    # distinct, in the order of the reply
    pairs: tuple[Pair, ...] = ()
    malformed: int = 0  # lines that are no pairs
    text: str = ""
    call: int = 0  # see `kgqa.types.Lesson`
    # the prompt started the reply, so that it had to answer
    forced: bool = False


@dataclass(frozen=True, slots=True)
class ParsedFacts:
    """The triples of a completion. `empty`: the number of triples with the object "none"."""

    # distinct, in the order of the reply
    facts: tuple[Fact, ...] = ()
    malformed: int = 0
    empty: int = 0
    text: str = ""


def read_exploration(text: str) -> Exploration:
    """Parse a reply that continues "Sufficient:".

    After "Yes", the thought is the text before the answer. After "No", each pair is a line `- entity; relation`,
    `- entity | relation` or `- entity : relation`, with a bullet, a number or without both. Other replies mean "no" if
    they list pairs, and "yes" if they mark an answer. The rest is neither.
    """
    first = re.match(r"\W*(yes|no|not)\b", text, flags=re.IGNORECASE)
    if first and first.group(1).lower() == "yes":
        return _conclusion(text[first.end() :], text)
    remark, *lines = text[first.end() if first else 0 :].split("\n")
    lines = [EXPLORE.sub("- ", line) for line in lines]
    content = [
        line for line in ([remark] if "|" in remark else []) + lines if re.search(r"\w", line)
    ]
    pairs = [_pair(line.strip()) for line in content]
    if not first and (ANSWER_LINE.search(text) or not any(pairs)):
        return _conclusion(text, text) if find_answer(text) else Exploration(None, text=text)
    return Exploration(
        False,
        pairs=tuple(dict.fromkeys(filter(None, pairs))),
        malformed=pairs.count(None),
        text=text,
    )


def _conclusion(reasoning: str, text: str) -> Exploration:
    answer_line = ANSWER_LINE.search(reasoning)
    inline = None if answer_line else INLINE_ANSWER.search(reasoning)
    end = answer_line.start() if answer_line else inline.start() + 1 if inline else None
    thought = reasoning[:end]
    thought = THOUGHT_LABEL.sub("", thought).lstrip(" \t\n.,:;*_").rstrip()
    return Exploration(True, thought, find_answer(reasoning), text=text)


def read_facts(text: str) -> ParsedFacts:
    """Parse the triples of a completion. A reply that is no list and neither empty nor "none" is malformed."""
    triples = read_triple_lines(text)
    facts = [
        fact for fact in (Fact(*map(unwrap, triple)) for triple in triples.triples) if all(fact)
    ]
    malformed = triples.malformed + len(triples.triples) - len(facts)
    stated = [fact for fact in facts if fact.object.lower() != "none"]
    malformed += (
        not facts
        and not malformed
        and re.match(r"\W*(none\b|$)", text, flags=re.IGNORECASE) is None
    )
    return ParsedFacts(tuple(dict.fromkeys(stated)), malformed, len(facts) - len(stated), text)


def _pair(line: str) -> Pair | None:
    mark = MARKS.match(line)
    content = unwrap(line[mark.end() :] if mark else line)
    is_listed = mark or content != line
    for separator in BETWEEN if is_listed else BETWEEN[:2]:
        entity, *relation = map(unwrap, re.split(separator, content, maxsplit=1))
        if entity and relation and relation[0]:
            return Pair(entity, relation[0])
    two = re.match(ONE_COMMA, content) if is_listed else None
    return Pair(unwrap(two[1]), unwrap(two[2])) if two else None


def name(entity: str) -> str:
    """Return the name as scorers normalize answers: "The Gorm." and "gorm" are one entity."""
    return normalize(entity) or " ".join(entity.casefold().split())


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
    names = {name(fact.subject), name(fact.object)}

    def onward(here: str, *, backwards: bool) -> PathStep | None:
        """Return a step to a new entity, preferably over an unused triple and in the direction of the path."""
        ways = (PathStep(fact, turned) for fact in graph for turned in (backwards, not backwards))
        new_ways = (
            way for way in ways if name(way.start) == name(here) and name(way.end) not in names
        )
        return min(
            new_ways, key=lambda way: (way.fact in used, way.backwards != backwards), default=None
        )

    while way := onward(path[-1].end, backwards=False):
        names.add(name(way.end))
        path.append(way)
    while way := onward(path[0].start, backwards=True):
        names.add(name(way.end))
        path.appendleft(PathStep(way.fact, not way.backwards))
    return path


def find_initial_entities(rounds: Sequence[tuple[Sequence[Pair], Sequence[Fact]]]) -> set[str]:
    """Return the names of entities that explorations introduced, which were not in the graph (§3.2).

    rounds: per iteration the explored pairs and their triples.
    """
    objects, initial = set[str](), set[str]()
    for pairs, facts in rounds:
        initial |= {name(pair.entity) for pair in pairs} - objects
        objects |= {name(entity) for fact in facts for entity in (fact.subject, fact.object)}
    return initial


def find_target_entities(graph: Collection[Fact], conclusion: str) -> set[str]:
    """Return the names of the graph's entities that are in the thought or the answer as whole words."""
    targets = set[str]()
    for form in (plain_words, name):
        text = f" {form(conclusion)} "
        entities = {entity for fact in graph for entity in (fact.subject, fact.object)}
        targets |= {
            name(entity) for entity in entities if form(entity) and f" {form(entity)} " in text
        }
    return targets


def support(
    graph: Sequence[Fact], initial: Collection[str], targets: Collection[str]
) -> list[Fact]:
    """Return the triples on the shortest paths from target entities to the nearest initial entities, in graph order.

    Edges go in both directions. The paper does not specify which of several paths counts, here all shortest ones. A
    target without a path to an initial entity, or that is an initial entity, adds no triples.
    """
    edges = [(name(fact.subject), name(fact.object), fact) for fact in graph]
    edges += [(end, start, fact) for start, end, fact in edges]
    entities = {start for start, _, _ in edges}
    distance = {
        entity: 0 for entity in initial if entity in entities
    }  # to the nearest initial entity
    waiting = deque(distance)
    while waiting:
        here = waiting.popleft()
        further = dict.fromkeys(
            end for start, end, _ in edges if start == here and end not in distance
        )
        distance |= dict.fromkeys(further, distance[here] + 1)
        waiting.extend(further)
    supporting, on_path = set[Fact](), {*targets}
    for here in sorted(distance, key=lambda entity: -distance[entity]):
        if here in on_path:
            nearer = {
                fact: end
                for start, end, fact in edges
                if start == here and distance[end] < distance[here]
            }
            supporting.update(nearer)
            on_path.update(nearer.values())
    return [fact for fact in graph if fact in supporting]
