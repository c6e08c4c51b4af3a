"""Parse the reply about a passage into triples. This runs on every load, so a better parser needs no new calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kgqa.types import Passage, Triple
from kgqa.util.triples import read_triples


@dataclass(frozen=True, slots=True)
class Extraction:
    """The unparsed reply about one passage, and its cost."""

    passage_id: str
    title: str
    completion: str
    prompt_tokens: int = 0
    output_tokens: int = 0
    flags: Mapping[str, int] = field(default_factory=dict)
    error: str | None = None  # why there is no reply


@dataclass(frozen=True, slots=True)
class ParsedTriples:
    """Distinct triples in the order of the reply, the number of malformed ones, and the doubtful ones."""

    triples: tuple[Triple, ...]
    malformed: int
    replaced_heads: frozenset[Triple]  # the head of the reply is not in the passage, so the title is used
    other_heads: frozenset[Triple]  # an entity of the text that is not the title
    absent_tails: frozenset[Triple]  # not in the passage


def parse_triples(completion: str, passage: Passage) -> ParsedTriples:
    """Parse the triples of a reply, see `read_triples`, and compare them with the passage.

    A head that is neither the title nor in the text becomes the title, if there is one (as in the released code). Case
    and repeated spaces are ignored.
    """
    written = read_triples(completion)
    title, text = _normalize(passage.title), _normalize(passage.text)
    triples: dict[Triple, None] = {}
    replaced, other, absent = set[Triple](), set[Triple](), set[Triple]()
    for head, relation, tail in written.triples:
        of_title, of_text = _normalize(head) == title, _normalize(head) in text
        triple = Triple(head if of_title or of_text else passage.title.strip() or head, relation, tail, passage.id)
        if triple in triples:
            continue
        triples[triple] = None
        if not of_title:
            (other if of_text else replaced).add(triple)
        if _normalize(tail) not in f"{title} {text}":
            absent.add(triple)
    return ParsedTriples(tuple(triples), written.malformed, *map(frozenset, (replaced, other, absent)))


def _normalize(text: str) -> str:
    return " ".join(text.split()).casefold()
