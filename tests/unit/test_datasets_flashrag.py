"""Questions and corpora in FlashRAG's form, and all rows of DeepResearcher's seven sets in it."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from kgqa.config.building import build
from kgqa.datasets import corpus
from kgqa.errors import DataError
from kgqa.scoring.metrics import score
from kgqa.types import Passage, Question
from tests.composed import composed_node

FOLDER = Path(os.environ.get("KGQA_DATA", "")) / "field" / "seven_sets"
RECORD = {"id": "test_0", "question": "who is it", "golden_answers": ["Ann", " ", "Anne", "Ann"], "metadata": {"a": 1}}


def read(file: Path, preset: str = "flashrag") -> list[Question]:
    return list(build({**composed_node("dataset", preset), "path": str(file)}, "dataset").questions())


def write_records(file: Path, *records: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return file


def test_seven_sets_are_read_without_loss_and_every_alias_is_scored() -> None:
    if not FOLDER.is_dir():
        pytest.skip("no seven_sets; set KGQA_DATA")
    for name, preset, count in [
        ("nq_test_512", "nq", 512), ("tq_test_512", "triviaqa", 512), ("popqa_test_512", "popqa", 512),
        ("bamboogle_test_125", "bamboogle", 125), ("hotpotqa_dev_125", "flashrag", 116),
        ("2wiki_test_512", "flashrag", 454), ("musique_test_512", "flashrag", 8),
    ]:  # fmt: skip
        file = FOLDER / f"{name}.jsonl.gz"
        questions = read(file, preset)
        rows = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
        assert len(questions) == len(rows) == count
        for row, question in zip(rows, questions, strict=True):
            assert (question.id, question.text) == (row["id"], row["question"])
            assert question.answers == tuple(dict.fromkeys(row["golden_answers"]))
            for alias in row["golden_answers"][:9]:
                assert score(alias, question.answers, "2wiki")["em"] == 1


def test_record_gives_each_answer_once_and_the_file_is_found_in_flashrags_folder(tmp_path: Path) -> None:
    for preset in ("nq", "triviaqa", "popqa", "bamboogle"):
        write_records(tmp_path / "dataset" / preset / "test.jsonl", RECORD)
        for folder in (tmp_path / "dataset", tmp_path / "dataset" / preset):
            assert read(folder, preset) == [Question("test_0", "who is it", ("Ann", "Anne"))]


def test_records_without_an_answer_to_score_missing_files_and_other_readers_are_rejected(tmp_path: Path) -> None:
    changes: list[tuple[dict[str, Any], str]] = [
        ({"golden_answers": []}, "golden_answers=[]: no gold answer. Remove the question"),
        ({"golden_answers": [" "]}, "golden_answers=[' ']: no gold answer"),
        ({"golden_answers": [2]}, "golden_answers.0=2"),  # of a multiple-choice question
        ({"id": 3}, "id=3"),
    ]
    for change, message in changes:
        with pytest.raises(DataError) as raised:
            read(write_records(tmp_path / "q.jsonl", RECORD, {**RECORD, **change}))
        assert "q.jsonl:2" in str(raised.value)
        assert message in str(raised.value)
    with pytest.raises(DataError, match="get it from https://huggingface"):
        read(tmp_path / "no.jsonl")
    for preset in ("hotpotqa", "2wiki", "musique"):
        with pytest.raises(DataError, match="looks like flashrag: run with dataset=flashrag"):
            read(write_records(tmp_path / "q.jsonl", RECORD), preset)


def test_corpus_of_contents_has_titles_without_quotes_and_is_searched(tmp_path: Path) -> None:
    contents = ['"Ann Lee"\nAnn is a painter.', "Bob\nBob\nbuilds.", "one line", '"\nx']
    file = write_records(tmp_path / "c.jsonl", *({"id": str(n), "contents": text} for n, text in enumerate(contents)))
    assert list(corpus.read(file)) == [
        Passage.of("Ann Lee", "Ann is a painter."), Passage.of("Bob", "Bob\nbuilds."), Passage.of("", "one line"),
        Passage.of('"', "x"),
    ]  # fmt: skip
    both = {"id": "0", "title": "Ann", "text": "Ann is a painter.", "contents": "Ann\nAnn is a painter."}
    assert list(corpus.read(write_records(tmp_path / "b.jsonl", both))) == [Passage.of("Ann", "Ann is a painter.")]
    node = {**composed_node("dataset", "flashrag"), "path": str(write_records(tmp_path / "q.jsonl", RECORD))}
    searched = write_records(tmp_path / "c.jsonl", {"id": "0", "contents": '"A"\nText.'})
    named = build({**node, "corpus": str(searched)}, "dataset")
    assert list(named.passages()) == [Passage.of("A", "Text.")]
    with pytest.raises(DataError, match=r"no passages with text in this file\. Name the file to search in"):
        list(build(node, "dataset").passages())
