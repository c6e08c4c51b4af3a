"""Your own questions in a JSONL or JSON file: `dataset=FILE.jsonl`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kgqa.config.composing import compose
from kgqa.config.short_forms import expand_short_forms
from kgqa.errors import DataError
from kgqa.types import Passage, Question
from tests.unit.files import jsonl, refusal, write
from tests.unit.question_files import HOTPOTQA, MUSIQUE, built_dataset

BARE = {"question": "Who wrote Birch?", "answer": "Alder"}
BIRCH, REED = Passage.of("Birch", "Alder wrote it."), Passage.of("", "A reed.")


def read(file: Path) -> list[Question]:
    return list(built_dataset("questions", file).questions())


@pytest.mark.parametrize("name", ["own.jsonl", "data/own.json", "own.jsonl.gz"])
def test_name_of_a_file_chooses_own_questions(name: str) -> None:
    assert expand_short_forms([f"dataset={name}"]) == [
        "dataset=questions",
        f"dataset.path={name}",
    ]


@pytest.mark.parametrize(
    ("path", "name"),
    [("data/own.v2.jsonl", "own.v2"), ("own.json.gz", "own"), ("musique.jsonl", "questions")],
    ids=["stem", "gzipped", "name of another dataset"],
)
def test_runs_have_the_name_of_the_file(path: str, name: str) -> None:
    assert compose(["method=no_context", f"dataset={path}"])["choices"]["dataset"] == name


def test_question_and_answer_are_enough(tmp_path: Path) -> None:
    file = write(tmp_path / "own.jsonl", jsonl(BARE, {"question": "Who?", "answers": ["A", "B"]}))
    assert read(file) == [
        Question("q1", "Who wrote Birch?", ("Alder",)),
        Question("q2", "Who?", ("A", "B")),
    ]


@pytest.mark.parametrize(
    "passages",
    [
        [{"title": "Birch", "text": "Alder wrote it.", "supporting": True}, "A reed."],
        [{"title": "Birch", "text": "Alder wrote it.", "is_supporting": True}, {"text": "A reed."}],
    ],
    ids=["text", "objects"],
)
def test_passages_of_a_question_are_read(tmp_path: Path, passages: list[Any]) -> None:
    record = {**BARE, "id": 7, "type": "book", "passages": passages}
    (question,) = read(write(tmp_path / "own.json", [record]))
    assert question == Question(
        "7", "Who wrote Birch?", ("Alder",), (BIRCH, REED), frozenset({BIRCH.id}),
        support_titles=frozenset({"Birch"}), type="book",
    )  # fmt: skip


def test_titles_name_the_gold_passages(tmp_path: Path) -> None:
    record = {**BARE, "passages": [["Birch", "Alder wrote it."]], "supporting_titles": ["Birch"]}
    (question,) = read(write(tmp_path / "own.json", [record]))
    assert question.support == {BIRCH.id}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"question": "Who?"}, "answer=None: no gold answer"),
        ({"question": "Who?", "anwser": "A"}, "unknown key 'anwser'. Did you mean answer?"),
        ({"answer": "A"}, "no key 'question'. A record needs question, answer"),
        ({**BARE, "answer": 3}, "answer=3: must be a text"),
        ({**BARE, "passages": [{"title": "Birch"}]}, "no key 'passages.0.text'"),
        ({**BARE, "passages": "Birch"}, "passages='Birch': must be a list"),
        ({**BARE, "id": "q1"}, "id 'q1' is already used by"),
        ({**BARE, "context": "Alder wrote it."}, "put the passages into the key 'passages'"),
        (HOTPOTQA, "this looks like hotpotqa: run with dataset=hotpotqa"),
        (MUSIQUE, "this looks like musique: run with dataset=musique"),
    ],
    ids=[
        "no answer", "misspelled answer", "no question", "number", "passage without text", "one text",
        "repeated id", "unread passages", "HotpotQA", "MuSiQue",
    ],
)  # fmt: skip
def test_line_and_key_of_an_invalid_record_are_named(
    tmp_path: Path, record: dict[str, Any], message: str
) -> None:
    file = write(tmp_path / "own.jsonl", jsonl(BARE, record))
    error = refusal(lambda: read(file), error=DataError)
    assert f"{file}:2: " in error
    assert message in error


def test_search_without_passages_names_both_remedies(tmp_path: Path) -> None:
    file = write(tmp_path / "own.jsonl", jsonl(BARE))
    dataset = built_dataset("questions", file)
    error = refusal(lambda: list(dataset.passages()), error=DataError)
    assert error.startswith(f"{file}: no passages with text in this file.")
    assert "dataset.corpus=FILE" in error
    assert "method=no_context" in error
