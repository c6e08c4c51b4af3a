"""Corpora: which passages a file gives, in which order, and what is said about files that are no corpus."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kgqa.datasets import corpus
from kgqa.datasets.musique import MuSiQue
from kgqa.errors import DataError
from kgqa.types import Passage
from tests.unit.files import jsonl, refusal, write
from tests.unit.question_files import musique

Record = dict[str, Any]
ANN, BOB = (
    {"title": "Ann", "text": "Ann is a painter."},
    {"title": "Bob &amp; Co.", "text": "A shop."},
)
EXPECTED = [Passage.of("Ann", "Ann is a painter."), Passage.of("Bob & Co.", "A shop.")]
HOTPOTQA: Record = {
    "_id": "a",
    "question": "Who?",
    "answer": "Ann",
    "context": [["Ann", ["Ann is ", " a painter."]]],
}
ONE = {"idx": 0, "title": "Ann", "paragraph_text": "Ann is a painter.", "is_supporting": True}
MUSIQUE: Record = {"id": "2hop__1", "question": "Who?", "answer": "Ann", "paragraphs": [ONE]}


def dataset(path: Path, *corpora: Path | str) -> MuSiQue:
    return musique(path, tuple(map(str, corpora)) or None)


@pytest.mark.parametrize("name", ["c.json", "c.json.gz"])
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(json.dumps([ANN, BOB]), id="list"),
        pytest.param(json.dumps([ANN, BOB], indent=2), id="indented list"),
        pytest.param(
            jsonl(ANN, {"title": "Bob &amp; Co.", "paragraph_text": "A shop."}), id="lines"
        ),
    ],
)
def test_passages_of_a_file_are_read(text: str, name: str, tmp_path: Path) -> None:
    assert list(corpus.read(write(tmp_path / name, text))) == EXPECTED


@pytest.mark.parametrize("indent", [None, 4])
def test_pages_of_sentences_are_read(indent: int | None, tmp_path: Path) -> None:
    pages = {"Ann": ["Ann is ", " a painter."], "Bob &amp; Co.": ["A shop."]}
    passages = list(corpus.read(write(tmp_path / "c.json", json.dumps(pages, indent=indent))))
    assert [(p.title, p.text) for p in passages] == [(p.title, p.text) for p in EXPECTED]
    assert passages[0].sentences == ("Ann is ", " a painter.")


@pytest.mark.parametrize(
    ("contexts", "count"),
    [
        pytest.param(
            json.dumps([HOTPOTQA, {"_id": "b", "question": "?", "context": HOTPOTQA["context"]}]),
            2,
            id="hotpotqa",
        ),
        pytest.param(jsonl(MUSIQUE, {**MUSIQUE, "answerable": False}), 2, id="musique"),
        pytest.param(
            jsonl({"question_id": "q", "question_text": "?", "contexts": MUSIQUE["paragraphs"]}),
            1,
            id="ircot",
        ),
    ],
)
def test_contexts_of_questions_are_read(contexts: str, count: int, tmp_path: Path) -> None:
    passages = list(corpus.read(write(tmp_path / "train.jsonl", contexts)))
    assert [passage.id for passage in passages] == [EXPECTED[0].id] * count


@pytest.mark.parametrize("indent", [None, 1])
def test_articles_of_iirc_are_read(indent: int | None, tmp_path: Path) -> None:
    long = 'one two three four five six seven eight nine <a href="x">ten</a> &lt;eleven&gt; 1 < 2'
    articles = {"ann (painter)": f"{' '.join('0123456789')}\n{long}\n\n  {long} more "}
    plain = "one two three four five six seven eight nine ten <eleven> 1 < 2"
    passages = list(
        corpus.read(write(tmp_path / "context_articles.json", json.dumps(articles, indent=indent)))
    )
    assert passages == [
        Passage.of("ann (painter)", plain),
        Passage.of("ann (painter)", f"{plain} more"),
    ]


def test_corpus_is_all_files_or_else_the_contexts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KGQA_DATA", str(tmp_path))
    further = {"title": "B", "paragraph_text": "B.", "is_supporting": False}
    other = {**MUSIQUE, "id": "b", "paragraphs": [*MUSIQUE["paragraphs"], further]}
    questions = write(tmp_path / "q.jsonl", jsonl(MUSIQUE, other))
    assert [passage.title for passage in dataset(questions).passages()] == ["Ann", "B"]
    both, ann = (
        write(tmp_path / "a.jsonl", jsonl(BOB, ANN, BOB)),
        write(tmp_path / "c.jsonl", jsonl(ANN)),
    )
    write(tmp_path / "corpora" / "b.json", json.dumps([ANN]))
    assert list(dataset(questions, both, "b.json").passages()) == EXPECTED[::-1]
    copy = write(tmp_path / "d.jsonl", jsonl(ANN))
    identity = dataset(questions, ann).corpus_identity()
    assert identity == dataset(questions, copy).corpus_identity()
    assert identity != dataset(questions, both).corpus_identity()
    assert identity != dataset(questions).corpus_identity()
    assert str(tmp_path) not in json.dumps(identity)


EMPTY = "no passages with text in this file"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "the file is empty", id="empty file"),
        pytest.param("{}", EMPTY, id="empty object"),
        pytest.param(jsonl({**MUSIQUE, "paragraphs": []}), EMPTY, id="no paragraphs"),
        pytest.param(
            jsonl({"question": "Who?", "answer": "Ann", "supporting_titles": ["Ann"]}),
            EMPTY,
            id="questions",
        ),
        pytest.param(
            jsonl({"title": "Ann", "text": ""}, {"title": "Bob", "text": " "}),
            EMPTY,
            id="blank texts",
        ),
        pytest.param(json.dumps({"Ann": [], "Bob": [""]}), EMPTY, id="blank pages"),
        pytest.param(
            jsonl(ANN, {"title": "Bob"}), "c.json:2: no key 'text'", id="line without text"
        ),
        pytest.param(
            jsonl(ANN, {"title": 5, "text": "Bob."}), "c.json:2: title=5", id="number as title"
        ),
        pytest.param(
            json.dumps([ANN, {"title": "Bob"}]),
            "c.json: record 2: no key 'text'",
            id="record without text",
        ),
        pytest.param(
            json.dumps({"Ann": ["A."], "Bob": [1]}, indent=0),
            "c.json (Bob): expected the sentences",
            id="page with a number",
        ),
        pytest.param(jsonl(ANN) + jsonl(BOB)[:-9], "c.json:2: not JSON", id="open line"),
        pytest.param(json.dumps([ANN, BOB], indent=0)[:-9], "c.json: not JSON", id="open list"),
        pytest.param(
            json.dumps({"Ann": ["A."]}, indent=0) + "\n{}",
            "c.json: not JSON: parse error: trailing garbage",
            id="text after the end",
        ),
        pytest.param(
            jsonl(ANN, {"title": "Bob", "text": "\ud800"}),
            "c.json:2: '\\ud800' is half a character",
            id="half a character",
        ),
    ],
)
def test_invalid_corpus_is_rejected_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    file = write(tmp_path / "c.json", text)
    assert message in refusal(lambda file: list(corpus.read(file)), file, error=DataError)
