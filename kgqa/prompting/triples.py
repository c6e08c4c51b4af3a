"""The one notation for triples in prompts and replies: `<head; relation; tail>`."""

from __future__ import annotations

import re
from typing import NamedTuple

# A bracket that is not closed on its line matches too, without group 2
BRACKETED = re.compile(r"[<⟨]([^<>⟨⟩\n]*)([>⟩])?")


class WrittenTriples(NamedTuple):
    """Triples in the order of the text with repetitions, and the number of malformed ones."""

    triples: tuple[tuple[str, str, str], ...]
    malformed: int


def read_triples(text: str) -> WrittenTriples:
    """Parse every `<head; relation; tail>`, one or several per line. ⟨ ⟩ are accepted as angle brackets."""
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
