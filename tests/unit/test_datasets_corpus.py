"""Corpora: which passages a file gives, in which order, and what is said about files that are no corpus."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kgqa.datasets import corpus
from kgqa.datasets.hotpotqa import HotpotQA
from kgqa.datasets.musique import MuSiQue
from kgqa.errors import ConfigError, DataError
from kgqa.types import Passage

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
    named = tuple(map(str, corpora)) or None
    return MuSiQue("musique", str(path), "dev", {"dev": ("musique_dev.jsonl",)}, named, "musique", "musique")


def refusal(file: Path) -> str:
    with pytest.raises(DataError) as raised:
        list(corpus.read(file))
    assert "\n" not in str(raised.value)
    return str(raised.value)


# Forms of files


@pytest.mark.parametrize("name", ["c.json", "c.json.gz"])
@pytest.mark.parametrize("text", [json.dumps([ANN, BOB]), json.dumps([ANN, BOB], indent=2), lines(ANN, BOB)])
def test_titles_and_texts_are_read_from_an_array_and_from_lines(tmp_path: Path, name: str, text: str) -> None:
    assert list(corpus.read(written(tmp_path / name, text))) == EXPECTED


def test_a_text_may_be_called_paragraph_text(tmp_path: Path) -> None:
    file = written(tmp_path / "c.jsonl", lines({"id": 1, "title": "Ann", "paragraph_text": "Ann is a painter."}))
    assert list(corpus.read(file)) == EXPECTED[:1]


@pytest.mark.parametrize("indent", [None, 4])
def test_one_object_of_titles_and_sentences_is_read(tmp_path: Path, indent: int | None) -> None:
    pages = {"Ann": ["Ann is ", " a painter."], "Bob &amp; Co.": ["A shop."]}
    passages = list(corpus.read(written(tmp_path / "c.json", json.dumps(pages, indent=indent))))
    assert [(p.title, p.text) for p in passages] == [(p.title, p.text) for p in EXPECTED]
    assert passages[0].sentences == ("Ann is ", " a painter.")


@pytest.mark.parametrize("indent", [None, 1])
def test_pages_are_split_into_paragraphs_without_markup(tmp_path: Path, indent: int | None) -> None:
    long = 'one two three four five six seven eight nine <a href="x">ten</a> &lt;eleven&gt; 1 < 2'
    pages = {"ann (painter)": f"short line\n{long}\n\n  {long} more "}
    passages = list(corpus.read(written(tmp_path / "context_articles.json", json.dumps(pages, indent=indent))))
    plain = "one two three four five six seven eight nine ten <eleven> 1 < 2"
    assert passages == [Passage.of("ann (painter)", plain), Passage.of("ann (painter)", f"{plain} more")]


def test_a_paragraph_of_a_page_has_at_least_eleven_words(tmp_path: Path) -> None:
    ten, eleven = " ".join("0123456789"), " ".join("01234567890")
    file = written(tmp_path / "c.json", json.dumps({"page": f"{ten}\n{eleven}"}))
    assert [passage.text for passage in corpus.read(file)] == [eleven]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (json.dumps([HOTPOTQA, {**HOTPOTQA, "_id": "b"}]), [EXPECTED[0]] * 2),
        (lines(MUSIQUE, {**MUSIQUE, "answerable": False}), [EXPECTED[0]] * 2),
        (lines({"question_id": "q", "question_text": "?", "contexts": MUSIQUE["paragraphs"]}), [EXPECTED[0]]),
    ],
    ids=["hotpotqa", "musique", "iirc"],
)
def test_a_question_file_gives_its_contexts(tmp_path: Path, text: str, expected: Sequence[Passage]) -> None:
    read = list(corpus.read(written(tmp_path / "train.jsonl", text)))
    assert [passage.id for passage in read] == [passage.id for passage in expected]


def test_a_test_split_without_answers_gives_its_contexts(tmp_path: Path) -> None:
    test = {"_id": "a", "question": "Who?", "context": HOTPOTQA["context"]}
    assert len(list(corpus.read(written(tmp_path / "test.json", json.dumps([test]))))) == 1


def test_a_corpus_is_read_as_it_is_asked_for(tmp_path: Path) -> None:
    """A broken end is noticed when it is reached, not before: nothing reads ahead."""
    file = written(tmp_path / "c.jsonl", lines(*[ANN] * 100_000) + "broken")
    passages = corpus.read(file)
    assert next(passages) == EXPECTED[0]
    with pytest.raises(DataError, match=re.escape(f"{file}:100001: not JSON")):
        list(passages)


# The corpus of a data set


def test_without_a_corpus_file_the_contexts_of_all_questions_are_the_corpus(tmp_path: Path) -> None:
    further = {"title": "B", "paragraph_text": "B.", "is_supporting": False}
    other = {**MUSIQUE, "id": "b", "paragraphs": [*MUSIQUE["paragraphs"], further]}
    found = dataset(written(tmp_path / "q.jsonl", lines(MUSIQUE, other)))
    assert [passage.title for passage in found.passages()] == ["Ann", "B"]


def test_several_corpus_files_are_one_corpus_without_repeated_passages(tmp_path: Path) -> None:
    questions = written(tmp_path / "q.jsonl", lines(MUSIQUE))
    first, second = written(tmp_path / "a.jsonl", lines(BOB, ANN, BOB)), written(tmp_path / "b.json", json.dumps([ANN]))
    assert list(dataset(questions, first, second).passages()) == EXPECTED[::-1]


def test_a_corpus_file_is_found_below_kgqa_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGQA_DATA", str(tmp_path))
    (tmp_path / "corpora").mkdir()
    written(tmp_path / "corpora" / "c.jsonl", lines(ANN))
    assert list(dataset(tmp_path / "none", "c.jsonl").passages()) == EXPECTED[:1]


def test_the_identity_of_a_corpus_follows_its_content_and_not_its_place(tmp_path: Path) -> None:
    questions = written(tmp_path / "q.jsonl", lines(MUSIQUE))
    first, copy = written(tmp_path / "a.jsonl", lines(ANN)), written(tmp_path / "b.jsonl", lines(ANN))
    other = written(tmp_path / "c.jsonl", lines(BOB))
    identity = dataset(questions, first).corpus_identity()
    assert identity == dataset(questions, copy).corpus_identity()
    assert identity != dataset(questions, other).corpus_identity()
    assert identity != dataset(questions).corpus_identity()
    assert str(tmp_path) not in json.dumps(identity)


def test_an_alias_file_does_not_change_the_corpus(tmp_path: Path) -> None:
    questions = written(tmp_path / "q.json", json.dumps([HOTPOTQA]))
    aliases = written(tmp_path / "id_aliases.json", '{"Q_id": "Q1"}\n')
    plain, aliased = (
        HotpotQA("2wiki", str(questions), "dev", {"dev": ("dev.json",)}, None, "2wiki", "2wiki", {"bridge": 2}, named)
        for named in (None, str(aliases))
    )
    assert plain.sha256 != aliased.sha256
    assert plain.corpus_identity() == aliased.corpus_identity()


# What is no corpus


def test_a_missing_corpus_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGQA_DATA", str(tmp_path))
    with pytest.raises(DataError, match=re.escape("dataset.corpus=none.jsonl: no such file, nor in")):
        dataset(tmp_path / "q.jsonl", "none.jsonl").passages()


def test_an_empty_list_of_corpus_files_is_a_wrong_setting() -> None:
    with pytest.raises(ConfigError, match=re.escape("dataset.corpus=[]")):
        MuSiQue("musique", None, "dev", {"dev": ("x",)}, (), "musique", "musique")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("[]", "no passages in this file"),
        ("{}", "no passages in this file"),
        (lines({**MUSIQUE, "paragraphs": []}), "no passages in this file"),
        (lines({"question": "Who?", "answer": "Ann", "supporting_titles": ["Ann"]}), "no passages in this file"),
        (json.dumps([{"title": "T", "text": "Main.", "questions": [], "links": []}]), "no passages in this file"),
        (lines({"title": "Ann", "text": ""}, {"title": "Bob", "text": " "}), "titles only: none of 2 passages"),
        (json.dumps({"Ann": [], "Bob": [""]}), "titles only: none of 2 passages"),
        (lines(ANN, {"title": "Bob"}), "c.json:2: no key 'text'"),
        (lines(ANN, {"text": "Bob."}), "c.json:2: no key 'title'"),
        (lines({"text": "Bob."}), "c.json:1: no key 'title'"),
        (lines(ANN, {"title": 5, "text": "Bob."}), "c.json:2: title=5"),
        (lines(ANN, {"title": "Bob", "text": None}), "c.json:2: text=None"),
        (json.dumps([ANN, {"title": "Bob"}]), "c.json: record 2: no key 'text'"),
        (json.dumps({"Ann": ["A."], "Bob": [1]}, indent=0), "c.json (Bob): expected the sentences"),
        (lines(ANN) + "17\n", "c.json:2: record=17"),
        (lines(ANN) + lines(BOB)[:-9], "c.json:2: not JSON"),
        (json.dumps([ANN, BOB], indent=0)[:-9], "c.json: not JSON"),
        (json.dumps({"Ann": ["A."], "Bob": ["B."]}, indent=0)[:-9], "c.json: not JSON"),
        (json.dumps({"Ann": ["A."]}, indent=0) + "\n{}", "c.json: not JSON: parse error: trailing garbage"),
        (lines(ANN, {"title": "Bob", "text": "\ud800"}), "c.json:2: '\\ud800' is half a character"),
        ("nothing at all", "c.json:1: not JSON"),
    ],
)
def test_what_is_no_corpus_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    assert said in refusal(written(tmp_path / "c.json", text))


def test_bytes_that_are_not_utf8_are_refused_with_their_line(tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    file.write_bytes(lines(*[ANN] * 50_000).encode() + b'{"title": "caf\xe9", "text": ""}\n')
    assert refusal(file) == f"{file}: not UTF-8 (byte 0xe9); convert the file to UTF-8"


def test_a_broken_gzip_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl.gz"
    file.write_bytes(gzip.compress(lines(ANN, BOB).encode())[:-12])
    assert refusal(file).startswith(f"{file}: broken gzip file")
