"""The one notation for triples in prompts and replies: `<head; relation; tail>`."""

from __future__ import annotations

import re
from typing import NamedTuple

# A bracket that is opened and not closed on its line matches too (group 2 is None): the rest of it may be missing.
BRACKETED = re.compile(r"[<⟨]([^<>⟨⟩\n]*)([>⟩])?")


class WrittenTriples(NamedTuple):
    """Triples in the order written, repetitions kept, and how many attempts were no triple."""

    triples: tuple[tuple[str, str, str], ...]
    malformed: int


def read_triples(text: str) -> WrittenTriples:
    """Every `<head; relation; tail>`, several to a line or one; ⟨ ⟩ count as angle brackets.

    Split twice from the right on `;`, so that a head may hold semicolons. Malformed: fewer than three parts, an empty
    part, an unclosed bracket, or a line of three parts without brackets. Any string is accepted.
    """
    triples: list[tuple[str, str, str]] = []
    malformed = 0
    for line in text.split("\n"):
        brackets = BRACKETED.findall(line)
        if not brackets:
            malformed += line.count(";") >= 2
        for content, closed in brackets:
            parts = [part.strip() for part in content.rsplit(";", 2)]
            if closed and len(parts) == 3 and all(parts):
                triples.append((parts[0], parts[1], parts[2]))
            else:
                malformed += 1
    return WrittenTriples(tuple(triples), malformed)
