"""Parse KnowTrace's replies: the formats of its prompts, of the paper's Table 5, and similar ones.

Any string is accepted. Malformed pairs and triples are counted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kgqa.methods.steps.knowtrace_graph import Fact, Pair
from kgqa.methods.steps.replies import AFTER, ANSWER, BEFORE, MARKS, find_answer, read_triple_lines, unwrap

BETWEEN = (r"\|", r"\s:\s", ";", r":\s(?!.*:\s)")  # entity and relation; the last two only in lists
EXPLORE = re.compile(r"^\W*explore\W*?:", re.IGNORECASE)
ANSWER_LINE = re.compile(rf"{BEFORE}{ANSWER}{AFTER}", re.MULTILINE | re.IGNORECASE)
THOUGHT_LABEL = re.compile(rf"\A\W*Thought{AFTER}", re.IGNORECASE)


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

    After "Yes", the thought is the text before the answer. After "No", each pair is a line `- entity; relation`,
    `- entity | relation` or `- entity : relation`, with a bullet, a number or without both. Other replies mean "no" if
    they list pairs, and "yes" if they mark an answer. The rest is neither.
    """
    first = re.match(r"\W*(yes|no|not)\b", text, flags=re.IGNORECASE)
    if first and first.group(1).lower() == "yes":
        return _conclusion(text[first.end() :], text)
    remark, *lines = text[first.end() if first else 0 :].split("\n")
    lines = [EXPLORE.sub("- ", line) for line in lines]
    written = [line for line in ([remark] if "|" in remark else []) + lines if re.search(r"\w", line)]
    pairs = [_pair(line.strip()) for line in written]
    if not first and (ANSWER_LINE.search(text) or not any(pairs)):
        return _conclusion(text, text) if find_answer(text) else Exploration(None, text=text)
    return Exploration(False, pairs=tuple(dict.fromkeys(filter(None, pairs))), malformed=pairs.count(None), text=text)


def _conclusion(reasoning: str, text: str) -> Exploration:
    answer_line = ANSWER_LINE.search(reasoning)
    thought = reasoning[: answer_line.start()] if answer_line else reasoning
    thought = THOUGHT_LABEL.sub("", thought).lstrip(" \t\n.,:;*_").rstrip()
    return Exploration(True, thought, find_answer(reasoning), text=text)


def read_facts(text: str) -> ParsedFacts:
    """Parse the triples of a completion. A reply that is no list and neither empty nor "none" is malformed."""
    written = read_triple_lines(text)
    facts = [fact for fact in (Fact(*map(unwrap, triple)) for triple in written.triples) if all(fact)]
    malformed = written.malformed + len(written.triples) - len(facts)
    stated = [fact for fact in facts if fact.object.lower() != "none"]
    malformed += not facts and not malformed and re.match(r"\W*(none\b|$)", text, flags=re.IGNORECASE) is None
    return ParsedFacts(tuple(dict.fromkeys(stated)), malformed, len(facts) - len(stated))


def _pair(line: str) -> Pair | None:
    mark = MARKS.match(line)
    content = unwrap(line[mark.end() :] if mark else line)
    is_listed = mark or content != line
    for separator in BETWEEN if is_listed else BETWEEN[:2]:
        entity, *relation = map(unwrap, re.split(separator, content, maxsplit=1))
        if entity and relation and relation[0]:
            return Pair(entity, relation[0])
    return None
