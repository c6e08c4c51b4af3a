"""Small files of questions, and the readers of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kgqa.config.building import build
from kgqa.datasets.hotpotqa import HotpotQA
from kgqa.datasets.musique import MuSiQue
from kgqa.errors import DataError
from kgqa.types import Question
from tests.composed import composed_node
from tests.unit import files
from tests.unit.files import jsonl, write

Record = dict[str, Any]


MUSIQUE: Record = {
    "id": "2hop__1_2",
    "question": "Who?",
    "answer": "Ann",
    "answer_aliases": ["Anne", "Ann", " "],
    "answerable": True,
    "paragraphs": [
        {"idx": 0, "title": "T", "paragraph_text": "One.", "is_supporting": False},
        {"idx": 1, "title": "T", "paragraph_text": "Two.", "is_supporting": True},
    ],
    "question_decomposition": [
        {"id": 1, "question": "a >> b", "answer": "x", "paragraph_support_idx": 1}
    ],
}
HOTPOTQA: Record = {
    "_id": "5a",
    "question": "Who?",
    "answer": "yes",
    "type": "bridge",
    "level": "hard",
    "context": [["A &amp; B", ["One.", " Two. ", ""]], ["C", ["Three."]]],
    "supporting_facts": [["A &amp; B", 0], ["A &amp; B", 7]],
}
HOPS = {"bridge": 2, "bridge_comparison": 4, "compositional": 2}


def musique(path: Path | str | None, corpus: tuple[str, ...] | None = None) -> MuSiQue:
    named = None if path is None else str(path)
    return MuSiQue(
        "musique",
        "dev",
        {"dev": ("musique_dev.jsonl",)},
        "musique",
        "musique",
        False,
        path=named,
        corpus=corpus,
    )


def hotpotqa(
    path: Path | str | None, aliases: Path | None = None, corpus: Path | None = None
) -> HotpotQA:
    named, other, searched = (
        None if each is None else str(each) for each in (path, aliases, corpus)
    )
    files = {"dev": ("2wikimultihopqa/dev.json", "dev.json")}
    return HotpotQA(
        "hotpotqa", "dev", files, "hotpotqa", "hotpotqa", HOPS, other, path=named, corpus=searched
    )


def musique_record(**changes: Any) -> Record:
    return {**MUSIQUE, **changes}


def hotpotqa_record(**changes: Any) -> Record:
    return {**HOTPOTQA, **changes}


def lines(folder: Path, *records: Record) -> Path:
    return write(folder / "questions.jsonl", jsonl(*records))


def array(folder: Path, *records: Record) -> Path:
    return write(folder / "questions.json", records)


def built_dataset(preset: str, path: Path | None, **changes: Any) -> Any:
    named = None if path is None else str(path)
    return build({**composed_node("dataset", preset), "path": named, **changes}, "dataset")


def only(dataset: MuSiQue | HotpotQA) -> Question:
    (question,) = dataset.questions()
    return question


def refusal(dataset: MuSiQue | HotpotQA) -> str:
    return files.refusal(lambda: list(dataset.questions()), error=DataError)
