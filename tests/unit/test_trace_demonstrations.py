"""The labelled documents and reasoning chains shipped for TRACE: enough of each data set, consistent, nobody else's."""

from __future__ import annotations

import json
import re
from collections import Counter
from importlib.resources import files
from itertools import pairwise
from typing import Any

import pytest

from kgqa.config import factories as parts
from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.datasets.demonstrations import load_chains, load_documents
from kgqa.kg.extraction import TripleExtractor
from kgqa.util.triples import read_triples

FAMILIES = ("hotpotqa", "2wiki", "musique", "iirc")
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
NUMBER = re.compile(r"\d+(?:,\d{3})*")
KINDS = {  # of questions, about as often as the data sets have them; musique's four hops are fewer there
    "hotpotqa": {"bridge": 18, "comparison": 6},
    "2wiki": {"compositional": 8, "comparison": 6, "bridge comparison": 6, "inference": 4},
    "musique": {
        "2 hops": 8, "3 hops in a row": 5, "3 hops, two joined": 4, "4 hops in a row": 4, "4 hops, two joined": 3,
    },
    "iirc": {"linked page": 16, "calculation": 5, "comparison": 3},
}  # fmt: skip


def read_lines(name: str) -> list[dict[str, Any]]:
    text = (files("kgqa") / "demos" / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


DOCUMENTS = {family: read_lines(f"trace_documents_{family}.jsonl") for family in FAMILIES}
CHAINS = {family: read_lines(f"trace_chains_{family}.jsonl") for family in FAMILIES}
ALL_DOCUMENTS = [document for documents in DOCUMENTS.values() for document in documents]
ALL_CHAINS = [chain for chains in CHAINS.values() for chain in chains]
documents = pytest.mark.parametrize("document", ALL_DOCUMENTS, ids=lambda document: document["title"])
chains = pytest.mark.parametrize("chain", ALL_CHAINS, ids=lambda chain: chain["question"][:40])


def chosen(chain: dict[str, Any]) -> list[list[str]]:
    return [step["candidates"][step["choice"]] for step in chain["steps"] if step["choice"] is not None]


def passed_over(chain: dict[str, Any]) -> list[list[str]]:
    right = chosen(chain)
    return [triple for step in chain["steps"] for triple in step["candidates"] if triple not in right]


def number(text: str) -> int:
    """The first one in a text; a month and a year are counted in months."""
    if month := re.fullmatch(r"(\w+) (\d{4})", text):
        return int(month[2]) * 12 + MONTHS.index(month[1])
    found = NUMBER.search(text)
    assert found, text
    return int(found[0].replace(",", ""))


def test_every_data_set_has_twenty_four_documents_and_twenty_four_chains() -> None:
    for family in FAMILIES:
        assert len(load_documents(family)) == 24  # the paper's authors label 50 and 20 (§C.4)
        assert len(load_chains(family)) == 24


def test_a_data_set_is_shown_its_familys() -> None:
    for dataset, family in {
        "hotpotqa_fullwiki": "hotpotqa",
        "2wiki": "2wiki",
        "demo": "musique",
        "iirc": "iirc",
    }.items():
        config = compose(["method=trace", f"dataset={dataset}"])
        assert build(config["method"], "method").few_shot == load_chains(family)
        kg = {key: value for key, value in config["kg"].items() if key != "require_existing"}
        extractor = parts.triples(kg)
        assert isinstance(extractor, TripleExtractor)
        assert extractor.few_shot == load_documents(family)


def test_none_is_shown_for_two_data_sets_nor_is_of_the_demo_dataset() -> None:
    demo = (files("kgqa") / "datasets" / "demo.jsonl").read_text(encoding="utf-8")
    for shown in ([each["title"] for each in ALL_DOCUMENTS], [each["question"] for each in ALL_CHAINS]):
        assert len(set(shown)) == len(shown)
        assert not [each for each in shown if json.dumps(each, ensure_ascii=False) in demo]


def test_questions_are_of_the_kinds_that_their_data_set_has() -> None:
    assert {family: Counter(chain["kind"] for chain in CHAINS[family]) for family in FAMILIES} == KINDS
    for family in FAMILIES:  # fixed demonstrations, the file's first, are not of one kind
        assert len({chain["kind"] for chain in CHAINS[family][:3]}) > 1


@documents
def test_what_a_document_is_said_to_state_stands_in_it(document: dict[str, Any]) -> None:
    title, text = document["title"], document["text"]
    stated = document["triples"]
    assert len({tuple(triple) for triple in stated}) == len(stated) >= 5
    for head, _, tail in stated:
        assert head == title or head in text, (head, title)
        assert tail in text, (tail, title)
    assert 2 * sum(head == title for head, _, _ in stated) > len(stated)
    assert set(NUMBER.findall(text)) <= set(NUMBER.findall(json.dumps(stated, ensure_ascii=False)))


@chains
def test_each_step_offers_four_distinct_triples_not_chosen_before(chain: dict[str, Any]) -> None:
    before: list[list[str]] = []
    for step in chain["steps"]:
        candidates = step["candidates"]
        assert len({tuple(candidate) for candidate in candidates}) == 4 == len(candidates)
        assert not [candidate for candidate in candidates if candidate in before]
        if step["choice"] is not None:
            before.append(candidates[step["choice"]])


@chains
def test_only_the_last_step_of_a_chain_stops(chain: dict[str, Any]) -> None:
    stops = [step["choice"] is None for step in chain["steps"]]
    assert stops == [False] * (len(stops) - 1) + [True]
    assert 2 <= len(chosen(chain)) <= 4  # method.max_length


@chains
def test_a_chain_starts_at_the_question_and_no_triple_of_it_hangs_loose(chain: dict[str, Any]) -> None:
    known = chain["question"]
    for head, _, tail in chosen(chain):
        assert head in known, head
        known += f" {tail}"
    if chain["kind"] not in {"comparison", "bridge comparison", "calculation"}:
        for place, (_, _, tail) in enumerate(chosen(chain)[:-1], start=1):
            assert [triple for triple in chosen(chain)[place:] if tail in " ".join(triple[:2])], tail


@chains
def test_a_chain_holds_its_answer_and_no_other_candidate_does(chain: dict[str, Any]) -> None:
    right, answer = chosen(chain), chain["answer"]
    if chain["kind"] == "calculation":
        numbers = [number(tail) for _, _, tail in right if re.search(r"\d", tail)]
        assert int(answer) in {abs(one - other) for one, other in pairwise(numbers)}
    elif "comparison" in chain["kind"]:
        assert answer in {"yes", "no"} or any(answer in triple for triple in right)
        assert [relation for _, relation, _ in right].count(right[-1][1]) == 2
    else:
        assert answer in right[-1][2]
        assert not [triple for triple in passed_over(chain) if answer in triple[2]]
    asked = [triple[:2] for triple in right]
    assert not [triple for triple in passed_over(chain) if triple[:2] in asked]


def test_every_triple_can_be_written_and_read() -> None:
    labelled = [triple for document in ALL_DOCUMENTS for triple in document["triples"]]
    for triple in labelled + [each for chain in ALL_CHAINS for step in chain["steps"] for each in step["candidates"]]:
        assert all(part and part == part.strip() for part in triple), triple
        assert read_triples(f"<{'; '.join(triple)}>").triples == (tuple(triple),)


@pytest.mark.parametrize("family", FAMILIES)
def test_right_answers_are_spread_over_all_four_positions(family: str) -> None:
    counts = Counter(step["choice"] for chain in CHAINS[family] for step in chain["steps"])
    assert set(counts) == {0, 1, 2, 3, None}
    assert min(counts[position] for position in range(4)) >= 9  # of 60 to 70


@pytest.mark.parametrize("family", ["hotpotqa", "2wiki", "iirc"])
def test_data_sets_with_closed_questions_show_both_answers(family: str) -> None:
    assert {"yes", "no"} <= {chain["answer"] for chain in CHAINS[family]}
