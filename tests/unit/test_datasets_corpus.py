"""Corpora: which passages a file gives, in which order, and what is said about files that are no corpus."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kgqa.datasets import corpus
from kgqa.datasets.musique import MuSiQue
from kgqa.errors import DataError
from kgqa.types import Passage
from tests.unit.question_files import musique

Record = dict[str, Any]
ANN, BOB = {"title": "Ann", "text": "Ann is a painter."}, {"title": "Bob &amp; Co.", "text": "A shop."}
EXPECTED = [Passage.of("Ann", "Ann is a painter."), Passage.of("Bob & Co.", "A shop.")]
HOTPOTQA: Record = {"_id": "a", "question": "Who?", "answer": "Ann", "context": [["Ann", ["Ann is ", " a painter."]]]}
MUSIQUE: Record = {
    "id": "2hop__1",
    "question": "Who?",
    "answer": "Ann",
    "paragraphs": [{"idx": 0, "title": "Ann", "paragraph_text": "Ann is a painter.", "is_supporting": True}],
}


def written(file: Path, text: str) -> Path:
    file.write_bytes(gzip.compress(text.encode()) if file.suffix == ".gz" else text.encode())
    return file


def lines(*found: Record) -> str:
    return "".join(json.dumps(record) + "\n" for record in found)


def dataset(path: Path, *corpora: Path | str) -> MuSiQue:
    return musique(path, tuple(map(str, corpora)) or None)


def refusal(file: Path) -> str:
    with pytest.raises(DataError) as raised:
        list(corpus.read(file))
    assert "\n" not in str(raised.value)
    return str(raised.value)


# Forms of files


@pytest.mark.parametrize("name", ["c.json", "c.json.gz"])
@pytest.mark.parametrize(
    "text",
    [
        json.dumps([ANN, BOB]),
        json.dumps([ANN, BOB], indent=2),
        lines(ANN, {"title": "Bob &amp; Co.", "paragraph_text": "A shop."}),
    ],
)
def test_titles_and_texts_are_read_from_an_array_and_from_lines(tmp_path: Path, name: str, text: str) -> None:
    assert list(corpus.read(written(tmp_path / name, text))) == EXPECTED


@pytest.mark.parametrize("indent", [None, 4])
def test_one_object_of_titles_and_sentences_is_read(tmp_path: Path, indent: int | None) -> None:
    pages = {"Ann": ["Ann is ", " a painter."], "Bob &amp; Co.": ["A shop."]}
    passages = list(corpus.read(written(tmp_path / "c.json", json.dumps(pages, indent=indent))))
    assert [(p.title, p.text) for p in passages] == [(p.title, p.text) for p in EXPECTED]
    assert passages[0].sentences == ("Ann is ", " a painter.")


@pytest.mark.parametrize("indent", [None, 1])
def test_pages_are_split_into_paragraphs_without_markup(tmp_path: Path, indent: int | None) -> None:
    long = 'one two three four five six seven eight nine <a href="x">ten</a> &lt;eleven&gt; 1 < 2'
    pages = {"ann (painter)": f"{' '.join('0123456789')}\n{long}\n\n  {long} more "}
    passages = list(corpus.read(written(tmp_path / "context_articles.json", json.dumps(pages, indent=indent))))
    plain = "one two three four five six seven eight nine ten <eleven> 1 < 2"
    assert passages == [Passage.of("ann (painter)", plain), Passage.of("ann (painter)", f"{plain} more")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (json.dumps([HOTPOTQA, {"_id": "b", "question": "?", "context": HOTPOTQA["context"]}]), [EXPECTED[0]] * 2),
        (lines(MUSIQUE, {**MUSIQUE, "answerable": False}), [EXPECTED[0]] * 2),
        (lines({"question_id": "q", "question_text": "?", "contexts": MUSIQUE["paragraphs"]}), [EXPECTED[0]]),
    ],
    ids=["hotpotqa", "musique", "iirc"],
)
def test_a_question_file_gives_its_contexts(tmp_path: Path, text: str, expected: Sequence[Passage]) -> None:
    read = list(corpus.read(written(tmp_path / "train.jsonl", text)))
    assert [passage.id for passage in read] == [passage.id for passage in expected]


# The corpus of a data set


def test_without_a_corpus_file_the_contexts_of_all_questions_are_the_corpus(tmp_path: Path) -> None:
    further = {"title": "B", "paragraph_text": "B.", "is_supporting": False}
    other = {**MUSIQUE, "id": "b", "paragraphs": [*MUSIQUE["paragraphs"], further]}
    found = dataset(written(tmp_path / "q.jsonl", lines(MUSIQUE, other)))
    assert [passage.title for passage in found.passages()] == ["Ann", "B"]


def test_several_corpus_files_are_one_corpus_without_repeated_passages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KGQA_DATA", str(tmp_path))
    (tmp_path / "corpora").mkdir()
    questions = written(tmp_path / "q.jsonl", lines(MUSIQUE))
    first, second = (
        written(tmp_path / "a.jsonl", lines(BOB, ANN, BOB)),
        written(tmp_path / "corpora" / "b.json", json.dumps([ANN])),
    )
    assert second.is_file()
    assert list(dataset(questions, first, "b.json").passages()) == EXPECTED[::-1]


def test_the_identity_of_a_corpus_follows_its_content_and_not_its_place(tmp_path: Path) -> None:
    questions = written(tmp_path / "q.jsonl", lines(MUSIQUE))
    first, copy = written(tmp_path / "a.jsonl", lines(ANN)), written(tmp_path / "b.jsonl", lines(ANN))
    other = written(tmp_path / "c.jsonl", lines(BOB))
    identity = dataset(questions, first).corpus_identity()
    assert identity == dataset(questions, copy).corpus_identity()
    assert identity != dataset(questions, other).corpus_identity()
    assert identity != dataset(questions).corpus_identity()
    assert str(tmp_path) not in json.dumps(identity)


# What is no corpus


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("{}", "no passages with text in this file"),
        (lines({**MUSIQUE, "paragraphs": []}), "no passages with text in this file"),
        (
            lines({"question": "Who?", "answer": "Ann", "supporting_titles": ["Ann"]}),
            "no passages with text in this file",
        ),
        (lines({"title": "Ann", "text": ""}, {"title": "Bob", "text": " "}), "no passages with text in this file"),
        (json.dumps({"Ann": [], "Bob": [""]}), "no passages with text in this file"),
        (lines(ANN, {"title": "Bob"}), "c.json:2: no key 'text'"),
        (lines(ANN, {"text": "Bob."}), "c.json:2: no key 'title'"),
        (lines(ANN, {"title": 5, "text": "Bob."}), "c.json:2: title=5"),
        (json.dumps([ANN, {"title": "Bob"}]), "c.json: record 2: no key 'text'"),
        (json.dumps({"Ann": ["A."], "Bob": [1]}, indent=0), "c.json (Bob): expected the sentences"),
        (lines(ANN) + lines(BOB)[:-9], "c.json:2: not JSON"),
        (json.dumps([ANN, BOB], indent=0)[:-9], "c.json: not JSON"),
        (json.dumps({"Ann": ["A."]}, indent=0) + "\n{}", "c.json: not JSON: parse error: trailing garbage"),
        (lines(ANN, {"title": "Bob", "text": "\ud800"}), "c.json:2: '\\ud800' is half a character"),
    ],
)
def test_what_is_no_corpus_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    assert said in refusal(written(tmp_path / "c.json", text))
