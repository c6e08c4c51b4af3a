"""A real file in HippoRAG's form beside the questions it was made from; skipped where the files are not there."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from kgqa.kg.exchange import ImportedTriples, TripledPassage, read_passages
from kgqa.types import Passage
from kgqa.util.fs import jsonl_text
from tests.golden.test_readers import DATA, questions

FILE = DATA.parent / "triples" / "musique_train_openie_gpt-3.5-turbo-1106_1890.json.gz"
FIRST = ("Journal of Mathematical Physics", "published by", "American Institute of Physics")
TRIPLES = "4ac62f438f7ec8d0"  # over all of them in their order


@pytest.fixture(scope="module")
def passages() -> list[TripledPassage]:
    if not FILE.is_file():
        pytest.skip(f"no {FILE}; KGQA_DATA names another folder")
    return read_passages(FILE, "hipporag")


def test_every_document_and_triple_is_read(passages: list[TripledPassage]) -> None:
    triples = [triple for passage in passages for triple in passage.triples]
    assert (len(passages), len(triples)) == (1886, 17_183)
    assert sum(passage.malformed for passage in passages) == 185
    assert sum(not passage.triples for passage in passages) == 2
    assert triples[0] == FIRST
    assert hashlib.sha256(json.dumps(triples).encode()).hexdigest()[:16] == TRIPLES


def test_the_passages_of_musique_are_found_by_title_and_text(passages: list[TripledPassage], tmp_path: Path) -> None:
    (tmp_path / "ours.jsonl").write_text(jsonl_text(passage.json() for passage in passages), encoding="utf-8")
    asked: dict[str, Passage] = {each.id: each for question in questions("musique") for each in question.passages}
    counts = ImportedTriples(str(tmp_path / "ours.jsonl")).counts(asked.values())
    assert counts == {"passages": 2965, "unmatched": 1075, "empty": 1077, "triples": 17_279}
