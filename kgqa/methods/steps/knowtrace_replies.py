"""Parse KnowTrace's replies: the formats of its prompts, of the paper's Table 5, and similar ones.

Any string is accepted. Malformed pairs and triples are counted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kgqa.methods.steps.knowtrace_graph import Fact, Pair
from kgqa.methods.steps.replies import MARKS, text_after_label, unwrap
from kgqa.prompting.triples import BRACKETED, read_triples

BETWEEN = (r"\|", r"\s:\s", r":\s(?!.*:\s)")  # entity and relation; the last one only in lists
WITHIN = (";", r"\s,\s", ",")  # a triple in parentheses
THOUGHT = re.compile(r"^[^\S\n]*Thought:(.*?)(?=^[^\S\n]*Answer:|\Z)", re.MULTILINE | re.DOTALL)
PARENTHESISED = re.compile(r"\(((?:[^()]|\([^()]*\))*)\)")


@dataclass(frozen=True, slots=True)
class Exploration:
    """The reply to the question whether the graph is sufficient."""

    sufficient: bool | None  # None: neither yes nor no
    thought: str = ""
    answer: str = ""
    pairs: tuple[Pair, ...] = ()  # distinct, in the order of the reply
    malformed: int = 0  # lines that are no pairs
    text: str = ""
    call: int = 0  # see `kgqa.types.Lesson`
    forced: bool = False  # the prompt started the reply, so that it had to answer


@dataclass(frozen=True, slots=True)
class ParsedFacts:
    """The triples of a completion. `empty`: the number of triples with the object "none"."""

    facts: tuple[Fact, ...]  # distinct, in the order of the reply
    malformed: int
    empty: int


def read_exploration(text: str) -> Exploration:
    """Parse a reply that continues "Sufficient:".

    After "Yes", the thought is the text between "Thought:" and the line "Answer:". After "No", each pair is a line
    `- entity | relation` or `- entity : relation`, with a bullet, a number or without both. Other replies are neither.
    """
    first = re.match(r"\W*(yes|no)\b", text, flags=re.IGNORECASE)
    if first is None:
        return Exploration(None, text=text)
    if first.group(1).lower() == "yes":
        thought = THOUGHT.search(text)
        return Exploration(
            True, thought.group(1).strip() if thought else "", text_after_label("Answer", text), text=text
        )
    remark, *lines = text[first.end() :].split("\n")
    lines = [re.sub(r"^\W*explore\W*?:", "", line, flags=re.IGNORECASE) for line in lines]
    written = [line for line in ([remark] if "|" in remark else []) + lines if re.search(r"\w", line)]
    pairs = [_pair(line.strip()) for line in written]
    return Exploration(False, pairs=tuple(dict.fromkeys(filter(None, pairs))), malformed=pairs.count(None), text=text)


def read_facts(text: str) -> ParsedFacts:
    """Parse triples, `<subject; relation; object>` or lines of `(subject, relation, object)`.

    Malformed are those of `read_triples`, parentheses without three parts, and a reply that is no list and neither
    empty nor "none".
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
    facts = [fact for fact in (Fact(*map(unwrap, triple)) for triple in triples) if all(fact)]
    malformed += len(triples) - len(facts)
    stated = [fact for fact in facts if fact.object.lower() != "none"]
    malformed += not facts and not malformed and re.match(r"\W*(none\b|$)", text, flags=re.IGNORECASE) is None
    return ParsedFacts(tuple(dict.fromkeys(stated)), malformed, len(facts) - len(stated))


def _pair(line: str) -> Pair | None:
    mark = MARKS.match(line)
    content = unwrap(line[mark.end() :] if mark else line)
    for separator in BETWEEN if mark else BETWEEN[:2]:
        entity, *relation = map(unwrap, re.split(separator, content, maxsplit=1))
        if entity and relation and relation[0]:
            return Pair(entity, relation[0])
    return None


def _parts(content: str) -> tuple[str, ...]:
    """Return three non-empty parts, or none."""
    for separator in WITHIN:
        parts = tuple(part.strip() for part in re.split(separator, content))
        if len(parts) == 3 and all(parts):
            return parts
    return ()
