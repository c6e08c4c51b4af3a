"""The labelled documents and reasoning chains shipped for TRACE are well formed."""

from __future__ import annotations

import json
from collections import Counter
from importlib.resources import files
from typing import Any


def read_lines(name: str) -> list[dict[str, Any]]:
    text = (files("kgqa") / "demos" / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


DOCUMENTS = read_lines("trace_documents.jsonl")
CHAINS = read_lines("trace_chains.jsonl")


def all_triples() -> list[list[str]]:
    labelled = [triple for document in DOCUMENTS for triple in document["triples"]]
    steps = [step for chain in CHAINS for step in chain["steps"]]
    return labelled + [triple for step in steps for triple in step["candidates"]]


def test_there_are_at_least_ten_documents_and_ten_chains() -> None:
    assert len(DOCUMENTS) >= 10
    assert len(CHAINS) >= 10


def test_every_triple_has_three_parts_that_the_triple_notation_can_hold() -> None:
    for triple in all_triples():
        assert len(triple) == 3, triple
        for part in triple:
            assert part, triple
            assert part == part.strip(), triple
            assert not set(part) & set(";<>"), triple


def test_every_tail_is_a_phrase_of_its_document() -> None:
    for document in DOCUMENTS:
        for triple in document["triples"]:
            assert triple[2].lower() in document["text"].lower(), triple


def test_each_step_offers_four_distinct_triples_not_chosen_before() -> None:
    for chain in CHAINS:
        chosen: list[list[str]] = []
        for step in chain["steps"]:
            candidates = step["candidates"]
            assert len({tuple(candidate) for candidate in candidates}) == 4 == len(candidates)
            assert not [candidate for candidate in candidates if candidate in chosen]
            if step["choice"] is not None:
                chosen.append(candidates[step["choice"]])


def test_only_the_last_step_of_a_chain_stops() -> None:
    for chain in CHAINS:
        stops = [step["choice"] is None for step in chain["steps"]]
        assert stops == [False] * (len(stops) - 1) + [True], chain["question"]


def test_right_answers_are_spread_over_all_four_positions() -> None:
    counts = Counter(step["choice"] for chain in CHAINS for step in chain["steps"])
    assert set(counts) == {0, 1, 2, 3, None}
    assert min(counts[position] for position in range(4)) >= 5
