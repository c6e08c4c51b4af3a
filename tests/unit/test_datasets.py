"""Readers of MuSiQue's and HotpotQA's format: odd records, files in odd places, and broken files."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kgqa.datasets.musique import MuSiQue
from kgqa.errors import ConfigError, DataError
from kgqa.types import Hop, Passage
from tests.unit.question_files import (
    MUSIQUE,
    array,
    hotpotqa,
    hotpotqa_record,
    lines,
    musique,
    musique_record,
    only,
    refusal,
)  # fmt: skip


def test_musique_record(tmp_path: Path) -> None:
    question = only(musique(lines(tmp_path, musique_record())))
    assert question.answers == ("Ann", "Anne")  # once each, without blank ones
    assert question.passages == (Passage.of("T", "One."), Passage.of("T", "Two."))
    assert question.support == {question.passages[1].id}
    assert question.support_titles == {"T"}
    assert question.decomposition == (Hop("a >> b", "x", question.passages[1].id),)
    assert (question.hops, question.type) == (1, "2hop")
    steps = [{"question": "a >> b", "answer": "x", "paragraph_support_idx": None}]
    question = only(
        musique(lines(tmp_path, musique_record(question_decomposition=steps, type="comparison")))
    )
    assert (question.decomposition, question.type) == ((Hop("a >> b", "x", ""),), "comparison")
    dataset = musique(lines(tmp_path, musique_record(answerable=False), musique_record()))
    assert [each and each.id for each in dataset.read()] == [None, "2hop__1_2"]
    assert [each.id for each in dataset.questions()] == ["2hop__1_2"]
    assert "no answerable questions" in refusal(
        musique(lines(tmp_path, musique_record(answerable=False)))
    )
    bare = {
        "id": "plain",
        "question": "?",
        "answer": "x",
        "supporting_titles": ["T &lt;1&gt;", "U"],
    }
    question = only(musique(lines(tmp_path, bare)))
    assert question.support_titles == {"T <1>", "U"}
    assert (question.hops, question.type, question.support, question.passages) == (
        None,
        "",
        frozenset(),
        (),
    )


def test_hotpotqa_record(tmp_path: Path) -> None:
    records = [
        hotpotqa_record(),
        hotpotqa_record(_id="b", type="bridge_comparison"),
        hotpotqa_record(_id="c", type=""),
    ]
    question, *others = hotpotqa(array(tmp_path, *records)).questions()
    assert question.passages == (
        Passage.of("A & B", "One. Two.", ("One.", " Two. ", "")),
        Passage.of("C", "Three.", ("Three.",)),
    )
    assert question.support == {question.passages[0].id}
    assert question.facts == ((question.passages[0].id, "One."),)  # sentence 7 does not exist
    assert question.support_titles == {"A & B"}
    assert [question.hops, *(other.hops for other in others)] == [2, 4, None]
    evidences = [[" C", "director", "Ann"], ["Ann", "born", "1900"]]
    question = only(hotpotqa(array(tmp_path, hotpotqa_record(evidences=evidences))))
    assert question.decomposition == (
        Hop("C, director", "Ann", question.passages[1].id),
        Hop("Ann, born", "1900", ""),
    )


def test_gold_is_the_passage_with_the_sentence(tmp_path: Path) -> None:
    question = only(
        hotpotqa(array(tmp_path, hotpotqa_record(supporting_facts=[["C", 0], ["D &amp; E", 0]])))
    )
    assert question.support == {question.passages[1].id, "missing:D & E"}
    assert question.support_titles == {"C", "D & E"}
    context = [
        ["C", ["Short."]],
        ["C", ["One.", "Two."]],
        ["C", ["Other.", "Two."]],
        ["C", ["One.", "Two."]],
    ]
    question = only(
        hotpotqa(array(tmp_path, hotpotqa_record(context=context, supporting_facts=[["C", 1]])))
    )
    assert question.support == {question.passages[1].id}
    assert question.passages[1] == question.passages[3]
    bare = {"id": "a", "question": "?", "answer": "x", "type": "bridge"}
    several = {
        "id": "a",
        "question": "?",
        "answers": ["Ann", "Anne"],
        "answer_aliases": ["A.", "Ann", " "],
    }
    assert only(hotpotqa(array(tmp_path, several))).answers == ("Ann", "Anne", "A.")
    assert only(hotpotqa(array(tmp_path, {**bare, "answers": ["Anne", "x"]}))).answers == (
        "x",
        "Anne",
    )


@pytest.mark.parametrize(
    "gold",
    [
        pytest.param({"supporting_facts": [["A &amp; B", 0], ["C", 2], ["C", 3]]}, id="facts"),
        pytest.param({"supporting_titles": ["A & B", "C"]}, id="titles"),
        pytest.param(
            {"supporting_titles": ["C"], "supporting_facts": [["A &amp; B", 1]]},
            id="titles and facts",
        ),
    ],
)
def test_gold_without_passages_is_titles(tmp_path: Path, gold: dict[str, Any]) -> None:
    bare = {"id": "a", "question": "?", "answer": "x", "type": "bridge"}
    question = only(hotpotqa(array(tmp_path, {**bare, **gold})))
    assert question.support_titles == {"A & B", "C"}
    assert (question.support, question.passages, question.hops) == (frozenset(), (), 2)


ALIASES = Path("id_aliases.json")


def test_alias_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    aliases = tmp_path / "id_aliases.json"
    aliases.write_text('{"Q_id": "Q1", "aliases": ["UK", "Britain"], "demonyms": ["British"]}\n')
    file = array(
        tmp_path,
        hotpotqa_record(answer="UK", answer_id="Q1"),
        hotpotqa_record(_id="b", answer_id=None),
    )
    # a file name is looked up next to the questions
    answers = [
        [question.answers for question in hotpotqa(file, path).questions()]
        for path in (aliases, ALIASES)
    ]
    assert answers == [[("UK", "Britain", "British"), ("yes",)]] * 2
    assert (
        hotpotqa(file).sha256
        != hotpotqa(file, aliases).sha256
        == hotpotqa(file, Path("auto")).sha256
    )
    assert hotpotqa(file, Path("auto")).missing_golds == ""
    assert hotpotqa(file).corpus_identity() == hotpotqa(file, aliases).corpus_identity()
    monkeypatch.setenv("KGQA_DATA", str(tmp_path / "data"))
    aliases.unlink()
    assert hotpotqa(file, Path("auto")).missing_golds == "without aliases"
    assert hotpotqa(file, Path("auto")).sha256 == hotpotqa(file).sha256
    missing = hotpotqa(file, Path("id_aliases.json"))
    assert f"no such file, nor in {tmp_path}, " in refusal(missing)
    with pytest.raises(DataError, match="no such file, nor in"):
        _ = missing.file


def test_missing_data_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGQA_DATA", str(tmp_path / "gone"))
    with pytest.raises(DataError, match=r"gone is no folder\. To fix it"):
        _ = MuSiQue("musique", "dev", {"dev": ("dev.jsonl",)}, "musique", "musique").file
    monkeypatch.setenv("KGQA_DATA", str(tmp_path))
    with pytest.raises(DataError, match=rf"{tmp_path}, data[^=]*data\. To fix it"):
        _ = MuSiQue("musique", "dev", {"dev": ("dev.jsonl",)}, "musique", "musique").file


@pytest.mark.parametrize("below", ["", "questions", "musique"])
@pytest.mark.parametrize(
    ("root", "variable"), [("own", "own"), ("data", "")], ids=["KGQA_DATA", "data"]
)
def test_data_folders_are_searched(
    root: str, variable: str, below: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KGQA_DATA", variable)
    folder = Path(root, below)
    folder.mkdir(parents=True)
    target = lines(tmp_path, MUSIQUE).rename(folder / "musique_dev.jsonl")
    assert musique(None).file == target
    assert musique(root).file == target


@pytest.mark.parametrize(
    "encode",
    [
        pytest.param(lambda text: text.encode("utf-8-sig"), id="byte order mark"),
        pytest.param(lambda text: gzip.compress(text.encode()), id="gzip"),
        pytest.param(lambda text: f"{text}\r\n\r\n".encode(), id="blank line"),
    ],
)
def test_encoding_is_recognized_by_the_content(
    encode: Callable[[str], bytes], tmp_path: Path
) -> None:
    (tmp_path / "questions").write_bytes(encode(json.dumps(MUSIQUE)))
    assert only(musique(tmp_path / "questions")).id == "2hop__1_2"


def test_compressed_file_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "musique_dev.jsonl.gz").write_bytes(gzip.compress(b"{}"))
    assert musique("x").file == Path("x/musique_dev.jsonl.gz")


def test_missing_files_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KGQA_DATA", str(tmp_path / "nowhere"))
    message = refusal(musique(None))
    assert "kgqa data download dataset=musique" in message
    assert all(
        place in message
        for place in ("musique_dev.jsonl", str(tmp_path / "nowhere"), "data/musique")
    )
    assert refusal(musique("none.jsonl")).startswith("dataset.path=none.jsonl: no such file")
    os.mkfifo("pipe")
    assert refusal(musique("pipe")) == "dataset.path=pipe: a pipe or a device. Name a file"
    assert "no package kgqa_absent" in refusal(musique("pkg://kgqa_absent/demo.jsonl"))
    assert "no musique_dev.jsonl" in refusal(musique(tmp_path))
    with pytest.raises(ConfigError, match=r"dataset\.split=dev: no such split"):
        MuSiQue("musique", "dev", {"dev": ()}, "musique", "musique", False)


WHOLE = json.dumps(MUSIQUE).encode()


@pytest.mark.parametrize(
    ("content", "error"),
    [
        pytest.param(
            b"", ": the file is empty. Name another file, or download it again", id="empty"
        ),
        pytest.param(b"[]", ": no answerable questions", id="no questions"),
        pytest.param(b"[\n" + WHOLE[:-30], ": not JSON: .*download it again", id="open list"),
        pytest.param(WHOLE + b'\n{"id": "b', ":2: not JSON", id="open line"),
        pytest.param(
            b"question,answer\n", ":1: not JSON.*Write one JSON object per line", id="table"
        ),
        pytest.param(
            b'{"id": "caf\xe9"}\n',
            r":1: not UTF-8 \(byte 0xe9\)\. Convert the file to UTF-8$",
            id="other encoding",
        ),
        pytest.param(gzip.compress(WHOLE)[:-20], ": broken gzip file", id="truncated gzip"),
        pytest.param(
            json.dumps(musique_record(question="\ud800?")).encode(),
            r":1: '\\ud800' is half a character",
            id="half a character",
        ),
        pytest.param(
            b"[%s, %s]" % (WHOLE, WHOLE),
            r": record 2 .*: id '2hop__1_2' is already used by .*: record 1",
            id="duplicate id",
        ),
    ],
)
def test_invalid_file_is_rejected_with_its_place(
    tmp_path: Path, content: bytes, error: str
) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_bytes(content)
    assert re.match(f"{re.escape(str(file))}{error}", refusal(musique(file)))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        pytest.param({"answer": 5}, "answer=5: .*. Correct the record", id="number as answer"),
        pytest.param({"answer": " "}, "answer=' ': .*dev split", id="blank answer"),
        pytest.param({"answer": "", "answers": ["x"]}, "answer='': no gold answer", id="no answer"),
        pytest.param(
            {"paragraphs": [{"title": "T", "paragraph_text": "One."}]},
            "no key 'paragraphs.0.is_supporting'",
            id="no supporting flag",
        ),
    ],
)
def test_invalid_record_is_rejected_with_its_line(
    tmp_path: Path, changes: dict[str, Any], error: str
) -> None:
    file = lines(tmp_path, musique_record(id="a"), musique_record(**changes))
    assert re.match(f"{re.escape(str(file))}:2: {error}", refusal(musique(file)))


def test_record_of_another_form_shows_the_needed_keys(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text('{"q": "Who?", "a": "Ann"}\n', encoding="utf-8")
    needed = (
        "A record needs id, question, answer. Without id: dataset=FILE.jsonl. "
        "For a file of another form: kgqa new dataset NAME"
    )
    assert refusal(musique(file)) == f"{file}:1: no key 'id'. {needed}"


@pytest.mark.parametrize("key", ["anser", "Answer", "answr"])
def test_misspelled_key_of_the_answer_is_named(tmp_path: Path, key: str) -> None:
    record = musique_record(id="a")
    record[key] = record.pop("answer")
    file = lines(tmp_path, record)
    message = f"{file}:1: unknown key {key!r}. Did you mean answer? Correct the record"
    assert refusal(musique(file)) == message


def test_file_of_another_dataset_suggests_it(tmp_path: Path) -> None:
    message = refusal(hotpotqa(array(tmp_path, hotpotqa_record(type="inference", evidences=[]))))
    assert "record 1 (id 5a): type='inference'" in message
    assert "looks like 2wiki" in message
    message = refusal(musique(array(tmp_path, hotpotqa_record())))
    assert (
        "record 1 (id 5a): no key 'id'. This looks like hotpotqa: run with dataset=hotpotqa"
        in message
    )
    assert "This looks like musique: run with dataset=musique" in refusal(
        hotpotqa(lines(tmp_path, MUSIQUE))
    )
