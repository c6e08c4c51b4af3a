"""The demo questions in the form of every data set that kgqa reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.attack.bending import as_lines

DEMO = Path(__file__).resolve().parents[2] / "kgqa/datasets/demo.jsonl"
QUESTIONS = 3
Record = dict[str, Any]


@dataclass(frozen=True)
class Form:
    """`records` in the form; written as lines or as one array."""

    records: Callable[[], list[Record]]
    lines: bool
    passages: bool = True  # the questions bring what is searched

    @property
    def suffix(self) -> str:
        return ".jsonl" if self.lines else ".json"

    def raw(self) -> bytes:
        return as_lines(self.records()) if self.lines else json.dumps(self.records()).encode()


def demo() -> list[Record]:
    return [json.loads(line) for line in DEMO.read_text(encoding="utf-8").split("\n")[:QUESTIONS]]


def hotpotqa() -> list[Record]:
    return [
        {
            "_id": record["id"],
            "question": record["question"],
            "answer": record["answer"],
            "type": "bridge",
            "level": "hard",
            "context": [[part["title"], _sentences(part["paragraph_text"])] for part in record["paragraphs"]],
            "supporting_facts": [[part["title"], 0] for part in record["paragraphs"] if part["is_supporting"]],
        }
        for record in demo()
    ]


def two_wiki() -> list[Record]:
    further = {"type": "compositional", "evidences": [["Candle Bridge", "designed by", "Ilse Ravenholt"]]}
    return [{**record, **further} for record in hotpotqa()]


def iirc_processed() -> list[Record]:
    """As IRCoT's processing writes it."""
    none = {"number": "", "date": {"day": "", "month": "", "year": ""}}
    return [
        {
            "question_id": record["id"],
            "question_text": record["question"],
            "answers_objects": [{**none, "spans": [record["answer"]]}],
            "contexts": record["paragraphs"],
            "pinned_contexts": [{**record["paragraphs"][0], "is_supporting": False}],
        }
        for record in demo()
    ]


def iirc_original() -> list[Record]:
    return [
        {
            "pid": f"p_{record['id']}",
            "title": record["paragraphs"][0]["title"],
            "text": record["paragraphs"][0]["paragraph_text"],
            "links": [{"target": part["title"], "indices": [0, 3]} for part in record["paragraphs"][1:]],
            "questions": [
                {
                    "qid": record["id"],
                    "question": record["question"],
                    "answer": {"type": "span", "answer_spans": [{"text": record["answer"], "passage": "main"}]},
                    "context": [{"passage": "main", "text": record["paragraphs"][0]["paragraph_text"][:40]}],
                }
            ],
        }
        for record in demo()
    ]


def kgp() -> list[Record]:
    return [
        {
            "question": record["question"],
            "answer": record["answer"],
            "title_chunks": [[part["title"], part["paragraph_text"]] for part in record["paragraphs"]],
            "supports": [
                [part["title"], part["paragraph_text"]] for part in record["paragraphs"] if part["is_supporting"]
            ],
        }
        for record in demo()
    ]


def corpus() -> list[Record]:
    return [{"title": part["title"], "text": part["paragraph_text"]} for part in demo()[0]["paragraphs"]]


def _sentences(text: str) -> list[str]:
    return [f"{sentence}." for sentence in text.rstrip(".").split(". ")]


CORPUS = Form(corpus, lines=True)
# by what `dataset=` calls it, and a word that says which of its forms
FORMS = {
    "musique": Form(demo, lines=True),
    "hotpotqa": Form(hotpotqa, lines=False),
    "hotpotqa_fullwiki": Form(hotpotqa, lines=False),
    "2wiki": Form(two_wiki, lines=False),
    "iirc": Form(iirc_processed, lines=True),
    "iirc original": Form(iirc_original, lines=False, passages=False),
    "kgp": Form(kgp, lines=False),
}
