"""The sample record in the docstring of each reader is one that the reader reads."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kgqa.datasets import collections, corpus, flashrag, hotpotqa, iirc, musique, questions, records
from kgqa.types import Passage
from tests.composed import build_choice, composed_node


def sample_records(module: ModuleType) -> list[Any]:
    """Return the JSON objects of the indented blocks of a module's docstring."""
    text = textwrap.dedent(
        "\n".join(line for line in str(module.__doc__).splitlines() if line.startswith("    "))
    )
    decoder, samples = json.JSONDecoder(), []
    while text.strip():
        sample, end = decoder.raw_decode(text.lstrip())
        samples.append(sample)
        text = text.lstrip()[end:]
    return samples


@pytest.mark.parametrize(
    ("module", "place", "name", "keys", "answer"),
    [
        (hotpotqa, 0, "2wiki", {"aliases": None}, "Cedar"),
        (musique, 0, "musique", {}, "Cedar"),
        (iirc, 0, "iirc", {}, "Cedar"),
        (iirc, 1, "iirc", {}, "Cedar"),
        (flashrag, 0, "nq", {}, "Alder"),
        (questions, 0, "questions", {}, "Cedar"),
        (
            records,
            0,
            "multihop_rag",
            {
                "question_key": "query",
                "answer_keys": ["gold.text"],
                "title_key": "evidence_list.title",
            },
            "Alder",
        ),
        (collections, 0, "kgp", {}, "Alder"),
    ],
    ids=[
        "hotpotqa",
        "musique",
        "iirc",
        "iirc processed",
        "flashrag",
        "questions",
        "records",
        "collections",
    ],
)
def test_sample_record_of_a_reader_is_a_question(
    tmp_path: Path, module: ModuleType, place: int, name: str, keys: dict[str, Any], answer: str
) -> None:
    file = tmp_path / "sample.jsonl"
    file.write_text(json.dumps(sample_records(module)[place]) + "\n", encoding="utf-8")
    node = {
        key: value for key, value in composed_node("dataset", name).items() if key != "verified"
    }
    dataset: Any = build_choice({**node, **keys, "path": str(file)}, "dataset")
    [question] = dataset.questions()
    assert question.answers[0] == answer


@pytest.mark.parametrize(
    "place", range(3), ids=["title and text", "contents", "titles with sentences"]
)
def test_sample_record_of_a_corpus_is_a_passage(tmp_path: Path, place: int) -> None:
    file = tmp_path / "sample.json"
    file.write_text(json.dumps(sample_records(corpus)[place]), encoding="utf-8")
    [passage] = corpus.read(file)
    assert isinstance(passage, Passage)
    assert passage.title == "Birch"
    assert passage.text.startswith("Birch is a book.")
