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
ANN, BOB = {"title": "Ann", "text": "Ann is a painter."}, {"title": "Bob &amp; Co.", "text": "A shop."}
EXPECTED = [Passage.of("Ann", "Ann is a painter."), Passage.of("Bob & Co.", "A shop.")]
HOTPOTQA: Record = {"_id": "a", "question": "Who?", "answer": "Ann", "context": [["Ann", ["Ann is ", " a painter."]]]}
ONE = {"idx": 0, "title": "Ann", "paragraph_text": "Ann is a painter.", "is_supporting": True}
MUSIQUE: Record = {"id": "2hop__1", "question": "Who?", "answer": "Ann", "paragraphs": [ONE]}


def dataset(path: Path, *corpora: Path | str) -> MuSiQue:
    return musique(path, tuple(map(str, corpora)) or None)


def test_every_form_of_file_is_read(tmp_path: Path) -> None:
    for text in (
        json.dumps([ANN, BOB]),
        json.dumps([ANN, BOB], indent=2),
        jsonl(ANN, {"title": "Bob &amp; Co.", "paragraph_text": "A shop."}),
    ):
        for name in ("c.json", "c.json.gz"):
            assert list(corpus.read(write(tmp_path / name, text))) == EXPECTED
    pages = {"Ann": ["Ann is ", " a painter."], "Bob &amp; Co.": ["A shop."]}
    for indent in (None, 4):
        passages = list(corpus.read(write(tmp_path / "c.json", json.dumps(pages, indent=indent))))
        assert [(p.title, p.text) for p in passages] == [(p.title, p.text) for p in EXPECTED]
        assert passages[0].sentences == ("Ann is ", " a painter.")
    for contexts, count in [
        (json.dumps([HOTPOTQA, {"_id": "b", "question": "?", "context": HOTPOTQA["context"]}]), 2),
        (jsonl(MUSIQUE, {**MUSIQUE, "answerable": False}), 2),
        (jsonl({"question_id": "q", "question_text": "?", "contexts": MUSIQUE["paragraphs"]}), 1),
    ]:
        read = list(corpus.read(write(tmp_path / "train.jsonl", contexts)))
        assert [passage.id for passage in read] == [EXPECTED[0].id] * count
    long = 'one two three four five six seven eight nine <a href="x">ten</a> &lt;eleven&gt; 1 < 2'
    articles = {"ann (painter)": f"{' '.join('0123456789')}\n{long}\n\n  {long} more "}
    plain = "one two three four five six seven eight nine ten <eleven> 1 < 2"
    for indent in (None, 1):
        passages = list(corpus.read(write(tmp_path / "context_articles.json", json.dumps(articles, indent=indent))))
        assert passages == [Passage.of("ann (painter)", plain), Passage.of("ann (painter)", f"{plain} more")]


def test_corpus_is_all_files_or_else_the_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGQA_DATA", str(tmp_path))
    further = {"title": "B", "paragraph_text": "B.", "is_supporting": False}
    other = {**MUSIQUE, "id": "b", "paragraphs": [*MUSIQUE["paragraphs"], further]}
    questions = write(tmp_path / "q.jsonl", jsonl(MUSIQUE, other))
    assert [passage.title for passage in dataset(questions).passages()] == ["Ann", "B"]
    both, ann = write(tmp_path / "a.jsonl", jsonl(BOB, ANN, BOB)), write(tmp_path / "c.jsonl", jsonl(ANN))
    write(tmp_path / "corpora" / "b.json", json.dumps([ANN]))
    assert list(dataset(questions, both, "b.json").passages()) == EXPECTED[::-1]
    copy = write(tmp_path / "d.jsonl", jsonl(ANN))
    identity = dataset(questions, ann).corpus_identity()
    assert identity == dataset(questions, copy).corpus_identity()
    assert identity != dataset(questions, both).corpus_identity()
    assert identity != dataset(questions).corpus_identity()
    assert str(tmp_path) not in json.dumps(identity)


def test_invalid_corpus_is_rejected_with_its_place(tmp_path: Path) -> None:
    nothing = "no passages with text in this file"
    for text, message in [
        ("", "the file is empty"), ("{}", nothing), (jsonl({**MUSIQUE, "paragraphs": []}), nothing),
        (jsonl({"question": "Who?", "answer": "Ann", "supporting_titles": ["Ann"]}), nothing),
        (jsonl({"title": "Ann", "text": ""}, {"title": "Bob", "text": " "}), nothing),
        (json.dumps({"Ann": [], "Bob": [""]}), nothing), (jsonl(ANN, {"title": "Bob"}), "c.json:2: no key 'text'"),
        (jsonl(ANN, {"title": 5, "text": "Bob."}), "c.json:2: title=5"),
        (json.dumps([ANN, {"title": "Bob"}]), "c.json: record 2: no key 'text'"),
        (json.dumps({"Ann": ["A."], "Bob": [1]}, indent=0), "c.json (Bob): expected the sentences"),
        (jsonl(ANN) + jsonl(BOB)[:-9], "c.json:2: not JSON"),
        (json.dumps([ANN, BOB], indent=0)[:-9], "c.json: not JSON"),
        (json.dumps({"Ann": ["A."]}, indent=0) + "\n{}", "c.json: not JSON: parse error: trailing garbage"),
        (jsonl(ANN, {"title": "Bob", "text": "\ud800"}), "c.json:2: '\\ud800' is half a character"),
    ]:  # fmt: skip
        file = write(tmp_path / "c.json", text)
        assert message in refusal(lambda file: list(corpus.read(file)), file, error=DataError)
