"""From what the model wrote about a passage to triples. Runs on every load, so a better parser needs no model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kgqa.types import Passage, Triple

# A bracket that is opened and not closed on its line matches too (group 2 is None): the rest of it may be missing.
BRACKETED = re.compile(r"[<⟨]([^<>⟨⟩\n]*)([>⟩])?")


@dataclass(frozen=True, slots=True)
class Extraction:
    """What the extractor wrote about one passage, unparsed, and what that cost."""

    passage_id: str
    title: str
    completion: str
    prompt_tokens: int = 0
    output_tokens: int = 0
    flags: Mapping[str, int] = field(default_factory=dict)
    error: str | None = None  # why there is no completion


@dataclass(frozen=True, slots=True)
class ParsedTriples:
    """Triples in the order written, without repetitions, and how many attempts were no triple."""

    triples: tuple[Triple, ...]
    malformed: int


def parse_triples(completion: str, passage: Passage) -> ParsedTriples:
    """Read every `<head; relation; tail>`, several to a line or one; ⟨ ⟩ count as angle brackets.

    Split twice from the right on `;`, so that a head may hold semicolons. A head that is neither the title nor
    occurs in the text (ignoring case) becomes the title, if there is one. Malformed: fewer than three parts, an empty
    part, an unclosed bracket, or a line of three parts without brackets. Any string is accepted.
    """
    found: dict[Triple, None] = {}
    malformed = 0
    for line in completion.split("\n"):
        brackets = BRACKETED.findall(line)
        if not brackets:
            malformed += line.count(";") >= 2
        for content, closed in brackets:
            parts = [part.strip() for part in content.rsplit(";", 2)]
            if not closed or len(parts) != 3 or not all(parts):
                malformed += 1
                continue
            head, relation, tail = parts
            found.setdefault(Triple(_grounded(head, passage), relation, tail, passage.id))
    return ParsedTriples(tuple(found), malformed)


def _grounded(head: str, passage: Passage) -> str:
    folded = head.casefold()
    known = folded == passage.title.casefold() or folded in passage.text.casefold()
    return head if known else passage.title.strip() or head
