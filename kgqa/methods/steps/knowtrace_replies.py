"""Reading KnowTrace's replies: in the forms its prompts ask for, in those of the paper's Table 5, and near ones.

Any string is accepted and nothing is made up; what is meant as a pair or a triplet and is none is counted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kgqa.methods.steps.knowtrace_graph import Fact, Pair
from kgqa.methods.steps.replies import MARKS, labelled, unwrapped
from kgqa.triples import BRACKETED, read_triples

BETWEEN = (r"\|", r"\s:\s", r":\s(?!.*:\s)")  # entity and relation; the last one, behind a name, in a list alone
WITHIN = (";", r"\s,\s", ",")  # a triplet in parentheses
THOUGHT = re.compile(r"^[^\S\n]*Thought:(.*?)(?=^[^\S\n]*Answer:|\Z)", re.MULTILINE | re.DOTALL)
PARENTHESISED = re.compile(r"\(((?:[^()]|\([^()]*\))*)\)")


@dataclass(frozen=True, slots=True)
class Exploration:
    """What the model wrote when it was asked whether the graph suffices."""

    sufficient: bool | None  # None: neither yes nor no
    thought: str = ""
    answer: str = ""
    pairs: tuple[Pair, ...] = ()  # once each, in the order written
    malformed: int = 0  # lines that had to be pairs
    text: str = ""
    call: int = 0  # see `kgqa.types.Lesson`
    forced: bool = False  # it was begun for the model, so that it had to answer


@dataclass(frozen=True, slots=True)
class WrittenFacts:
    """The triplets of a completion. `malformed`: attempts that are none. `empty`: those whose object is "none"."""

    facts: tuple[Fact, ...]  # once each, in the order written
    malformed: int
    empty: int


def read_exploration(text: str) -> Exploration:
    """Read a reply that goes on after "Sufficient:".

    Yes: "Thought:" and what follows up to the line "Answer:". No: a line `- entity | relation` or
    `- entity : relation` for each pair; a number may stand for the bullet, or nothing. Anything else says neither.
    """
    first = re.match(r"\W*(yes|no)\b", text, flags=re.IGNORECASE)
    if first is None:
        return Exploration(None, text=text)
    if first.group(1).lower() == "yes":
        thought = THOUGHT.search(text)
        return Exploration(True, thought.group(1).strip() if thought else "", labelled("Answer", text), text=text)
    remark, *lines = text[first.end() :].split("\n")
    lines = [re.sub(r"^\W*explore\W*?:", "", line, flags=re.IGNORECASE) for line in lines]
    written = [line for line in ([remark] if "|" in remark else []) + lines if re.search(r"\w", line)]
    pairs = [_pair(line.strip()) for line in written]
    return Exploration(False, pairs=tuple(dict.fromkeys(filter(None, pairs))), malformed=pairs.count(None), text=text)


def read_facts(text: str) -> WrittenFacts:
    """Read triplets, `<subject; relation; object>` or lines of `(subject, relation, object)`.

    Malformed is what `read_triples` finds so, parentheses without three parts, and a reply that is no list at all:
    neither empty nor "none".
    """
    triples: list[tuple[str, ...]] = []
    malformed = 0
    for line in text.split("\n"):
        bare = MARKS.sub("", line.strip(), count=1)
        if bare.startswith("(") and not BRACKETED.search(line):
            attempts = [_parts(content) for content in PARENTHESISED.findall(bare)]
            triples += [parts for parts in attempts if parts]
            malformed += attempts.count(()) or int(not attempts)
        else:
            read = read_triples(line)
            triples += read.triples
            malformed += read.malformed
    facts = [fact for fact in (Fact(*map(unwrapped, triple)) for triple in triples) if all(fact)]
    malformed += len(triples) - len(facts)
    told = [fact for fact in facts if fact.object.lower() != "none"]
    malformed += not facts and not malformed and re.match(r"\W*(none\b|$)", text, flags=re.IGNORECASE) is None
    return WrittenFacts(tuple(dict.fromkeys(told)), malformed, len(facts) - len(told))


def _pair(line: str) -> Pair | None:
    mark = MARKS.match(line)
    content = unwrapped(line[mark.end() :] if mark else line)
    for separator in BETWEEN if mark else BETWEEN[:2]:
        entity, *relation = map(unwrapped, re.split(separator, content, maxsplit=1))
        if entity and relation and relation[0]:
            return Pair(entity, relation[0])
    return None


def _parts(content: str) -> tuple[str, ...]:
    """Three that are not empty, or none."""
    for separator in WITHIN:
        parts = tuple(part.strip() for part in re.split(separator, content))
        if len(parts) == 3 and all(parts):
            return parts
    return ()
