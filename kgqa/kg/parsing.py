"""From what the model wrote about a passage to triples. Runs on every load, so a better parser needs no model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kgqa.triples import read_triples
from kgqa.types import Passage, Triple


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
    """Triples in the order written, without repetitions, how many attempts were no triple, and which are in doubt."""

    triples: tuple[Triple, ...]
    malformed: int
    replaced_heads: frozenset[Triple]  # what was written is not in the passage, its title, if any, stands for it
    other_heads: frozenset[Triple]  # another entity of the text than the title
    absent_tails: frozenset[Triple]  # not in the passage


def parse_triples(completion: str, passage: Passage) -> ParsedTriples:
    """The triples of a completion, see `read_triples`, on the passage's ground.

    A head that is neither the title nor occurs in the text becomes the title, if there is one (the released code).
    Whether something occurs is asked without regard to case and blanks.
    """
    written = read_triples(completion)
    title, text = _folded(passage.title), _folded(passage.text)
    triples: dict[Triple, None] = {}
    replaced, other, absent = set[Triple](), set[Triple](), set[Triple]()
    for head, relation, tail in written.triples:
        of_title, of_text = _folded(head) == title, _folded(head) in text
        triple = Triple(head if of_title or of_text else passage.title.strip() or head, relation, tail, passage.id)
        if triple in triples:
            continue
        triples[triple] = None
        if not of_title:
            (other if of_text else replaced).add(triple)
        if _folded(tail) not in f"{title} {text}":
            absent.add(triple)
    return ParsedTriples(tuple(triples), written.malformed, *map(frozenset, (replaced, other, absent)))


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()
