"""Triples that others made as a run's knowledge graph: whose passage they are, and what a line of the file says.

Passages are the same where title and text are, whatever the case, blanks and punctuation: tools split words apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from unicodedata import normalize

from kgqa.protocols import Need
from kgqa.types import Json, Passage


@dataclass(frozen=True)
class ImportedTriples:
    """Fields as in conf/kg/imported.yaml."""

    path: str | None

    @property
    def uses(self) -> frozenset[Need]:
        return frozenset()


Parts = tuple[str, str, str]  # head, relation, tail


@dataclass(frozen=True, slots=True)
class TripledPassage:
    """A passage with what was read in it. Without a title the text may begin with it."""

    title: str
    text: str
    triples: tuple[Parts, ...]
    malformed: int = 0  # what stood for a triple and is none

    @property
    def key(self) -> bytes:
        return wording_key(self.title, self.text)

    def json(self) -> dict[str, Json]:
        return {"title": self.title, "text": self.text, "triples": [list(triple) for triple in self.triples]}


def wording_key(*texts: str) -> bytes:
    """Equal where the texts, one behind the other, have the same letters and digits; empty where they have none."""
    letters = "".join(filter(str.isalnum, normalize("NFKC", "".join(texts)).casefold()))
    return hashlib.sha256(letters.encode("utf-8", "surrogatepass")).digest()[:16] if letters else b""


def passage_keys(passage: Passage) -> tuple[bytes, ...]:
    """What a passage may be called in a file: its title and text; else, where the file gives no titles, its text."""
    return wording_key(passage.title, passage.text), wording_key(passage.text)


def cleaned(written: Iterable[Json]) -> tuple[tuple[Parts, ...], int]:
    """Triples in their order, each once, with single blanks; and how many are none: not of three texts that say
    something."""
    triples: dict[Parts, None] = {}
    malformed = 0
    for each in written:
        parts = [" ".join(part.split()) for part in each if isinstance(part, str)] if isinstance(each, list) else []
        if len(parts) == 3 and len(each) == 3 and all(parts):
            triples[parts[0], parts[1], parts[2]] = None
        else:
            malformed += 1
    return tuple(triples), malformed
