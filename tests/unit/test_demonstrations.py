"""Files of demonstrations: ours, the authors', and broken ones."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from kgqa.calls import Call, Rank
from kgqa.datasets.demonstrations import load_chains, load_documents
from kgqa.errors import DataError
from kgqa.prompting.demonstrations import choose_demonstrations
from kgqa.testing import drive

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


def test_our_chains_keep_candidates_choices_and_the_stop(tmp_path: Path) -> None:
    [chain] = load_chains(written(tmp_path, CHAIN))
    assert chain.chain == ("<Elm; painter; Fir>",)
    assert [step.choice for step in chain.selections] == [1, None]
    assert chain.selections[0].candidates == ("<Elm; size; small>", "<Elm; painter; Fir>")


def test_our_documents_show_their_triples(tmp_path: Path) -> None:
    [document] = load_documents(written(tmp_path, DOCUMENT))
    assert document.topic == "Elm: Elm is by Fir."
    assert document.triples == ("<Elm; painter; Fir>",)


def test_the_authors_file_is_read_by_data_set(tmp_path: Path) -> None:
    path = released(tmp_path, RELEASED)
    [document] = load_documents(f"{path}#hotpotqa")
    assert document.triples == ("<Elm; painter; Fir>", "<Elm; a>")
    [chain] = load_chains(f"{path}#HOTPOTQA")
    assert chain.chain == ("<y>",)
    assert chain.selections[1].candidates == ("<z>",)


def test_the_authors_file_needs_a_data_set(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds several data sets; name one, e.g. .*#HOTPOTQA"):
        load_chains(released(tmp_path, RELEASED))
    with pytest.raises(DataError, match=r"no list 'TRIPLE_EXAMPLARS_IIRC'; data sets in this file: HOTPOTQA"):
        load_documents(released(tmp_path, RELEASED) + "#iirc")


def test_a_missing_file_names_the_shipped_ones() -> None:
    with pytest.raises(
        DataError, match=r"absent.jsonl: no such file .* trace_chains_2wiki.jsonl, trace_chains_hotpotqa"
    ):
        load_chains("absent.jsonl")


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"question": "?"}, r":2: 'steps' is missing \(found: question\)"),
        ([1], r":2: expected an object with 'question'"),
        ({**CHAIN, "question": " "}, r":2: question=' ' must be a text"),
        ({**CHAIN, "steps": []}, r":2: steps=\[\] must be a list that is not empty"),
        ({**CHAIN, "steps": CHAIN["steps"][::-1]}, r":2: step 1 stops, but more steps follow"),
        ({**CHAIN, "steps": CHAIN["steps"][1:]}, r":2: the chain selects no triple"),
        ({**CHAIN, "steps": [{"candidates": [["a", "b", "c"]], "choice": 1}]}, r":2: step 1 has choice=1"),
        ({**CHAIN, "steps": [{"candidates": [["a", "b", "c"]], "choice": "B"}]}, r":2: choice='B' must be a position"),
        ({**CHAIN, "steps": [{"candidates": [["a", "b"]], "choice": 0}]}, r":2: triple \['a', 'b'\] must be"),
    ],
)
def test_a_bad_record_is_named_by_file_and_line(tmp_path: Path, record: Any, message: str) -> None:
    with pytest.raises(DataError, match=r"own.jsonl" + message):
        load_chains(written(tmp_path, CHAIN, record))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"no demonstrations in this file"),
        (b'{"title": "Elm"', r":1: not JSON"),
        (b'{"title": "\xff"}', r"not UTF-8 at byte 11"),
    ],
)
def test_a_broken_file_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "own.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_documents(str(path))


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    path = Path(released(tmp_path, RELEASED))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"released.json.gz: cannot be read"):
        load_chains(f"{path}#HOTPOTQA")


def test_a_letter_that_is_no_option_is_refused(tmp_path: Path) -> None:
    broken = [{"question": "?", "candidate_triples": ["A. none", "B. <z>"], "answer": "F"}]
    with pytest.raises(DataError, match=r"answer='F' is not the letter of an option \(A, B\)"):
        load_chains(released(tmp_path, {"GENERATING_CHAIN_EXAMPLARS_X": [broken]}) + "#X")


def test_equally_near_demonstrations_keep_the_files_order() -> None:
    labelled = load_documents("musique")

    def reply(call: Call[Any]) -> Any:
        assert isinstance(call, Rank)
        return (0.5,) * len(call.texts)

    assert drive(choose_demonstrations(labelled, "adaptive", 3, "query"), reply) == labelled[:3]


def test_half_a_character_in_a_demonstration_is_refused_where_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "documents.jsonl"
    file.write_text('{"title": "Oslo", "text": "A town.", "triples": [["Oslo", "is", "\\ud800"]]}\n')
    with pytest.raises(DataError, match=r"documents.jsonl:1: .*is half a character"):
        load_documents(str(file))
