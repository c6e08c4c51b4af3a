"""Where the readers look for their files, and what they say about broken ones."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kgqa.datasets.musique import MuSiQue
from kgqa.errors import ConfigError
from tests.unit.question_files import array, hotpotqa, hotpotqa_record, lines, musique, musique_record, only, refusal

# Where the file lies


def test_gzip_is_seen_from_the_content(tmp_path: Path) -> None:
    file = tmp_path / "questions"
    file.write_bytes(gzip.compress(json.dumps(musique_record()).encode()))
    assert only(musique(file)).id == "2hop__1_2"


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text(json.dumps(musique_record()), encoding="utf-8-sig")
    assert only(musique(file)).id == "2hop__1_2"


def test_windows_line_ends_and_blank_lines_are_taken(tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_bytes(json.dumps(musique_record()).encode() + b"\r\n\r\n")
    assert only(musique(file)).id == "2hop__1_2"


def test_a_folder_is_searched_for_the_standard_name(tmp_path: Path) -> None:
    (tmp_path / "musique_dev.jsonl.gz").write_bytes(gzip.compress(json.dumps(musique_record()).encode()))
    assert only(musique(tmp_path)).id == "2hop__1_2"


@pytest.mark.parametrize("below", ["", "questions", "musique"])
def test_kgqa_data_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str) -> None:
    monkeypatch.setenv("KGQA_DATA", str(tmp_path))
    (tmp_path / below).mkdir(exist_ok=True)
    target = lines(tmp_path, musique_record()).rename(tmp_path / below / "musique_dev.jsonl")
    assert musique(None).file == target


def test_the_standard_place_is_below_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KGQA_DATA", raising=False)
    (tmp_path / "data" / "musique").mkdir(parents=True)
    lines(tmp_path, musique_record()).rename(tmp_path / "data" / "musique" / "musique_dev.jsonl")
    assert musique(None).file == Path("data/musique/musique_dev.jsonl")


def test_a_telling_name_wins_over_a_common_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGQA_DATA", str(tmp_path))
    (tmp_path / "2wikimultihopqa").mkdir()
    for file in (tmp_path / "dev.json", tmp_path / "2wikimultihopqa" / "dev.json"):
        file.write_text("[]")
    assert hotpotqa(None).file == tmp_path / "2wikimultihopqa" / "dev.json"


def test_an_absent_dataset_names_the_command_that_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KGQA_DATA", str(tmp_path / "nowhere"))
    message = refusal(musique(None))
    assert "kgqa data download dataset=musique" in message
    assert all(place in message for place in ("musique_dev.jsonl", str(tmp_path / "nowhere"), "data/musique"))


def test_a_packaged_file_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert musique("pkg://kgqa.datasets/demo.jsonl").file.is_file()


def test_the_hash_is_that_of_the_file_now(tmp_path: Path) -> None:
    file = lines(tmp_path, musique_record())
    before = musique(file).sha256
    lines(tmp_path, musique_record(answer="Bob"))
    assert musique(file).sha256 != before


# Broken files


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert refusal(musique(tmp_path / "none.jsonl")).startswith(f"dataset.path={tmp_path / 'none.jsonl'}: no such file")


def test_an_absent_package_is_refused() -> None:
    assert "no package kgqa_absent" in refusal(musique("pkg://kgqa_absent/demo.jsonl"))


@pytest.mark.parametrize("content", ["", " \n\n"])
def test_an_empty_file_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text(content)
    assert refusal(musique(file)) == f"{file}: the file is empty; download it again"


def test_an_empty_list_is_refused(tmp_path: Path) -> None:
    assert "no answerable questions" in refusal(hotpotqa(array(tmp_path)))


def test_a_truncated_array_is_refused(tmp_path: Path) -> None:
    file = array(tmp_path, hotpotqa_record())
    file.write_text("[\n" + json.dumps(hotpotqa_record())[:-30])
    message = refusal(hotpotqa(file))
    assert message.startswith(f"{file}: not JSON")
    assert "download it again" in message


def test_a_truncated_line_is_refused(tmp_path: Path) -> None:
    file = lines(tmp_path, musique_record(), musique_record(id="b"))
    file.write_text(file.read_text()[:-30])
    assert refusal(musique(file)).startswith(f"{file}:2: not JSON")


@pytest.mark.parametrize("damage", [lambda raw: raw[:-20], lambda raw: raw[:40] + b"broken" + raw[46:]])
def test_a_broken_gzip_file_is_refused(tmp_path: Path, damage: Any) -> None:
    file = tmp_path / "questions.jsonl.gz"
    file.write_bytes(damage(gzip.compress(json.dumps(musique_record()).encode())))
    assert refusal(musique(file)).startswith(f"{file}: broken gzip file")


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_bytes(b'{"id": "caf\xe9"}\n')
    assert refusal(musique(file)).startswith(f"{file}:1: not JSON: not UTF-8 (byte 0xe9)")


def test_half_a_surrogate_is_refused(tmp_path: Path) -> None:
    file = lines(tmp_path, musique_record(question="Who \ud800?"))
    assert refusal(musique(file)).startswith(f"{file}:1: '\\ud800' is half a character")


def test_a_hotpotqa_file_given_to_musique_is_named(tmp_path: Path) -> None:
    file = array(tmp_path, hotpotqa_record())
    message = refusal(musique(file))
    assert message.startswith(f"{file}: record 1 (id 5a): no key 'id'")
    assert "this looks like hotpotqa: run with dataset=hotpotqa" in message


def test_a_musique_file_given_to_hotpotqa_is_named(tmp_path: Path) -> None:
    file = lines(tmp_path, musique_record())
    assert "this looks like musique: run with dataset=musique" in refusal(hotpotqa(file))


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"answer": 5}, "answer=5"),
        ({"paragraphs": "text"}, "paragraphs='text'"),
        ({"paragraphs": [{"title": "T", "paragraph_text": "One."}]}, "no key 'paragraphs.0.is_supporting'"),
        ({"answer_aliases": [None]}, "answer_aliases.0=None"),
        ({"id": None}, "id=None"),
    ],
)
def test_a_value_of_the_wrong_type_is_named(tmp_path: Path, changes: Mapping[str, Any], place: str) -> None:
    file = lines(tmp_path, musique_record(), musique_record(**changes))
    message = refusal(musique(file))
    assert message.startswith(f"{file}:2: {place}")
    assert "correct the record" in message


def test_a_record_that_is_no_object_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text("17\n")
    assert refusal(musique(file)).startswith(f"{file}:1: record=17")


def test_duplicate_ids_are_refused(tmp_path: Path) -> None:
    file = lines(tmp_path, musique_record(), musique_record())
    assert refusal(musique(file)).startswith(f"{file}:2: id '2hop__1_2' is already taken by {file}:1")


@pytest.mark.parametrize("answer", [None, "", "  "])
def test_a_question_without_answers_is_refused(tmp_path: Path, answer: str | None) -> None:
    file = lines(tmp_path, musique_record(answer=answer))
    message = refusal(musique(file))
    assert message.startswith(f"{file}:1: answer={answer!r}")
    assert "dev split" in message


def test_a_folder_that_cannot_be_the_file_is_refused(tmp_path: Path) -> None:
    assert "no musique_dev.jsonl" in refusal(musique(tmp_path))


def test_no_file_names_is_a_wrong_setting() -> None:
    with pytest.raises(ConfigError, match=re.escape("dataset.files.dev=[]")):
        MuSiQue("musique", None, "dev", {"dev": ()}, None, "musique", "musique")
