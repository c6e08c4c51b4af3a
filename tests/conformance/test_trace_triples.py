"""Triples that are parsed from recorded extraction replies, beside the authors' `parse_model_output`."""

from __future__ import annotations

from kgqa.kg.store import parse_triples
from kgqa.types import Passage
from tests.conformance.support import load, needs_data

pytestmark = needs_data
HEAD, ROWS = load("trace_triples")
INTENDED = {  # kgqa's own triples are recorded, too
    "empty_part": "a triple with an empty part is malformed",
    "head_match": "a head is looked for in the passage without regard to case and blanks",
}


def test_triples_are_the_authors_triples() -> None:
    for row in ROWS:
        passage = Passage("p", row["title"], " | ".join(row["heads_in_text"]))  # the part of the text that decides
        ours = [[triple.head, triple.relation, triple.tail] for triple in parse_triples(row["reply"], passage).triples]
        if row["on_purpose"]:
            assert row["on_purpose"] in INTENDED
            assert ours == row["kgqa"] != row["triples"]
        else:
            assert ours == row["triples"]


def test_two_of_the_replies_differ_on_purpose() -> None:
    assert sum(bool(row["on_purpose"]) for row in ROWS) == 2
    assert len(ROWS) == 300
