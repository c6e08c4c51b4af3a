"""Files of demonstrations: ours, the authors', and broken ones."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from kgqa.datasets.demonstrations import load_chains, load_documents
from kgqa.errors import DataError

CHAIN = {
    "question": "Who painted Elm?",
    "steps": [
        {"candidates": [["Elm", "size", "small"], ["Elm", "painter", "Fir"]], "choice": 1},
        {"candidates": [["Fir", "age", "3"]], "choice": None},
    ],
}
DOCUMENT = {"title": "Elm", "text": "Elm is by Fir.", "triples": [["Elm", "painter", "Fir"]]}
RELEASED = {
    "TRIPLE_EXAMPLARS_HOTPOTQA": [
        {"title": "Elm", "text": "Elm is by Fir.", "triples": "<Elm; painter; Fir>\n<Elm; a>"}
    ],
    "GENERATING_CHAIN_EXAMPLARS_HOTPOTQA": [
        [
            {
                "question": "Who painted Elm?",
                "triples": [],
                "candidate_triples": ["A. none", "B. <x>", "C. <y>"],
                "answer": "C",
            },
            {
                "question": "Who painted Elm?",
                "triples": ["<y>"],
                "candidate_triples": ["A. none", "B. <z>"],
                "answer": "A",
            },
        ]
    ],
}


def written(folder: Path, *records: Any, name: str = "own.jsonl") -> str:
    path = folder / name
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    return str(path)


def released(folder: Path, content: Any) -> str:
    path = folder / "released.json.gz"
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    return str(path)


def test_the_shipped_files_are_found_by_family_and_by_name() -> None:
    assert load_documents("2wiki") == load_documents("trace_documents_2wiki.jsonl") != load_documents("musique")
    assert load_chains("2wiki") == load_chains("trace_chains_2wiki.jsonl") != load_chains("musique")


def test_own_records(tmp_path: Path) -> None:
    [chain] = load_chains(written(tmp_path, CHAIN))
    assert chain.chain == ("<Elm; painter; Fir>",)
    assert [step.choice for step in chain.selections] == [1, None]
    assert chain.selections[0].candidates == ("<Elm; size; small>", "<Elm; painter; Fir>")
    [document] = load_documents(written(tmp_path, DOCUMENT))
    assert (document.topic, document.triples) == ("Elm: Elm is by Fir.", ("<Elm; painter; Fir>",))


def test_the_authors_file_is_read_by_data_set(tmp_path: Path) -> None:
    path = released(tmp_path, RELEASED)
    [document] = load_documents(f"{path}#hotpotqa")
    assert document.triples == ("<Elm; painter; Fir>", "<Elm; a>")
    [chain] = load_chains(f"{path}#HOTPOTQA")
    assert chain.chain == ("<y>",)
    assert chain.selections[1].candidates == ("<z>",)


def test_the_authors_file_needs_a_data_set(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has several datasets. Name one, e.g. .*#HOTPOTQA"):
        load_chains(released(tmp_path, RELEASED))
    with pytest.raises(DataError, match=r"no list 'TRIPLE_EXAMPLARS_IIRC'. Datasets in this file: HOTPOTQA"):
        load_documents(released(tmp_path, RELEASED) + "#iirc")


def test_a_missing_file_names_the_shipped_ones() -> None:
    with pytest.raises(
        DataError, match=r"absent.jsonl: no such file .* trace_chains_2wiki.jsonl, trace_chains_hotpotqa"
    ):
        load_chains("absent.jsonl")


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"question": "?"}, r":2: no key 'steps'"),
        ({**CHAIN, "question": " "}, r":2: question=' ': string should have at least 1"),
        ({**CHAIN, "steps": []}, r":2: steps=\[\]: tuple should have at least 1"),
        ({**CHAIN, "steps": CHAIN["steps"][::-1]}, r":2: step 1 stops, but more steps follow"),
        ({**CHAIN, "steps": CHAIN["steps"][1:]}, r":2: the chain selects no triple"),
        ({**CHAIN, "steps": [{"candidates": [["a", "b", "c"]], "choice": 1}]}, r":2: step 1 has choice=1"),
        (
            {**CHAIN, "steps": [{"candidates": [["a", "b", "c"]], "choice": "B"}]},
            r":2: steps.0.choice='B': must be an integer",
        ),
    ],
)
def test_a_bad_record_is_named_by_file_and_line(tmp_path: Path, record: Any, message: str) -> None:
    with pytest.raises(DataError, match=r"own.jsonl" + message):
        load_chains(written(tmp_path, CHAIN, record))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"title": "Elm"', r":1: not JSON"),
        (b'{"title": "a", "text": "\\ud800", "triples": "x"}', r":1: .*is half a character"),
        (b'{"title": "\xff"}', r":1: not JSON: not UTF-8"),
    ],
)
def test_a_broken_file_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "own.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_documents(str(path))
