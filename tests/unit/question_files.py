"""Small files of questions, and the readers of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kgqa.datasets.hotpotqa import HotpotQA
from kgqa.datasets.musique import MuSiQue
from kgqa.errors import DataError
from kgqa.types import Question

Record = dict[str, Any]


def musique(path: Path | str | None) -> MuSiQue:
    return MuSiQue(
        "musique",
        None if path is None else str(path),
        "dev",
        {"dev": ("musique_dev.jsonl",)},
        None,
        "musique",
        "musique",
    )


def hotpotqa(path: Path | str | None, aliases: Path | None = None) -> HotpotQA:
    hops = {"bridge": 2, "bridge_comparison": 4}
    files = ("2wikimultihopqa/dev.json", "dev.json")
    named = None if aliases is None else str(aliases)
    return HotpotQA(
        "hotpotqa",
        None if path is None else str(path),
        "dev",
        {"dev": files},
        None,
        "hotpotqa",
        "hotpotqa",
        hops,
        named,
    )


def musique_record(**changes: Any) -> Record:
    record = {
        "id": "2hop__1_2",
        "question": "Who?",
        "answer": "Ann",
        "answer_aliases": ["Anne", "Ann", " "],
        "answerable": True,
        "paragraphs": [
            {"idx": 0, "title": "T", "paragraph_text": "One.", "is_supporting": False},
            {"idx": 1, "title": "T", "paragraph_text": "Two.", "is_supporting": True},
        ],
        "question_decomposition": [{"id": 1, "question": "a >> b", "answer": "x", "paragraph_support_idx": 1}],
    }
    return {**record, **changes}


def hotpotqa_record(**changes: Any) -> Record:
    record = {
        "_id": "5a",
        "question": "Who?",
        "answer": "yes",
        "type": "bridge",
        "level": "hard",
        "context": [["A &amp; B", ["One.", " Two. ", ""]], ["C", ["Three."]]],
        "supporting_facts": [["A &amp; B", 0], ["A &amp; B", 7]],
    }
    return {**record, **changes}


def lines(folder: Path, *records: Record) -> Path:
    file = folder / "questions.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return file


def array(folder: Path, *records: Record) -> Path:
    file = folder / "questions.json"
    file.write_text(json.dumps(records), encoding="utf-8")
    return file


def only(dataset: MuSiQue | HotpotQA) -> Question:
    (question,) = dataset.questions()
    return question


def refusal(dataset: MuSiQue | HotpotQA) -> str:
    """The message with which the file is refused: one line, as the person at the keyboard sees it."""
    with pytest.raises(DataError) as raised:
        list(dataset.questions())
    assert "\n" not in str(raised.value)
    return str(raised.value)
