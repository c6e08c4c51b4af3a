"""OpenIE in two calls: what the second call gets from the first, and what is stored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from kgqa.calls import Call, Generate
from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.kg.openie import OpenIe
from kgqa.kg.store import Extraction, parse_triples
from kgqa.testing import drive
from kgqa.types import Completion, Passage, Triple

PASSAGE = Passage.of("The Herring Queen", "The Herring Queen is an opera by Asbjarne Lyngholt of Fauskenes.")
ENTITIES = '{"named_entities": ["The Herring Queen", "Asbjarne Lyngholt"]}'


def extract(replies: Sequence[str]) -> tuple[Extraction, list[Generate]]:
    node = {key: value for key, value in compose(["kg=openie"])["kg"].items() if key != "require_existing"}
    extractor = build(node, "kg")
    assert isinstance(extractor, OpenIe)
    calls: list[Generate] = []

    def reply(call: Call[Any]) -> Completion:
        assert isinstance(call, Generate)
        calls.append(call)
        return Completion(replies[len(calls) - 1])

    return drive(extractor.extract(PASSAGE), reply), calls


def test_triples_are_written_with_the_entities_of_the_first_call() -> None:
    rows = [["The Herring Queen", "composer", "Asbjarne Lyngholt"], ["Asbjarne Lyngholt; he", "town", "x"]]
    triples = json.dumps({"triples": rows})
    extraction, calls = extract([ENTITIES, triples])
    assert ENTITIES in calls[1].prompt.messages[-1].content
    assert all(call.schema and call.role == "extractor" for call in calls)
    assert extraction.flags == {}
    assert parse_triples(extraction.completion, PASSAGE).triples[0] == Triple(
        "The Herring Queen", "composer", "Asbjarne Lyngholt", PASSAGE.id
    )
    assert parse_triples(extraction.completion, PASSAGE).malformed == 0


@pytest.mark.parametrize(
    ("replies", "flag"),
    [
        (["no JSON", '{"triples": []}'], "unreadable_entities"),
        ([ENTITIES, '{"triples": "none"}'], "unreadable_triples"),
    ],
)
def test_an_unreadable_reply_is_flagged(replies: list[str], flag: str) -> None:
    extraction, _ = extract(replies)
    assert extraction.flags == {flag: 1}
    assert parse_triples(extraction.completion, PASSAGE).triples == ()


def test_text_around_the_json_is_ignored_and_a_pair_is_malformed() -> None:
    extraction, _ = extract([f"Here: {ENTITIES}.", 'Sure:\n{"triples": [["a", "b"]]}'])
    assert extraction.flags == {}
    assert parse_triples(extraction.completion, PASSAGE).malformed == 1
