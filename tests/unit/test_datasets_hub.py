"""Data sets in Hugging Face's form, written here with the library itself in the hub's own schemas."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kgqa.datasets import huggingface as hub
from kgqa.datasets.hotpotqa import HotpotQA
from kgqa.datasets.musique import MuSiQue
from kgqa.datasets.sources import Hub
from kgqa.errors import DataError

datasets: Any = pytest.importorskip("datasets", reason="needs the extra datasets")

Record = dict[str, Any]
TEXT, NUMBER = datasets.Value("string"), datasets.Value("int32")
HOTPOTQA = {  # of hotpotqa/hotpot_qa
    "id": TEXT, "question": TEXT, "answer": TEXT, "type": TEXT, "level": TEXT,
    "supporting_facts": {"title": datasets.Sequence(TEXT), "sent_id": datasets.Sequence(NUMBER)},
    "context": {"title": datasets.Sequence(TEXT), "sentences": datasets.Sequence(datasets.Sequence(TEXT))},
}  # fmt: skip
ROW: Record = {
    "id": "5a", "question": "Who?", "answer": "yes", "type": "bridge", "level": "hard",
    "supporting_facts": {"title": ["A &amp; B", "A &amp; B"], "sent_id": [0, 7]},
    "context": {"title": ["A &amp; B", "C"], "sentences": [["One.", " Two. ", ""], ["Three."]]},
}  # fmt: skip
ORIGINAL: Record = {
    "_id": "5a", "question": "Who?", "answer": "yes", "type": "bridge", "level": "hard",
    "supporting_facts": [["A &amp; B", 0], ["A &amp; B", 7]],
    "context": [["A &amp; B", ["One.", " Two. ", ""]], ["C", ["Three."]]],
}  # fmt: skip
MUSIQUE_ROW: Record = {
    "id": "2hop__1_2", "question": "Who?", "answer": "Ann", "answer_aliases": ["Anne"], "answerable": True,
    "paragraphs": [
        {"idx": 0, "title": "T", "paragraph_text": "One.", "is_supporting": False},
        {"idx": 1, "title": "T", "paragraph_text": "Two.", "is_supporting": True},
    ],
    "question_decomposition": [{"id": 1, "question": "a", "answer": "x", "paragraph_support_idx": 1}],
}  # fmt: skip
HUB = Hub(id="hotpotqa/hotpot_qa", config="distractor", split="validation")


@pytest.fixture(autouse=True)
def quiet() -> None:
    datasets.disable_progress_bars()


def hotpotqa(rows: Sequence[Record] = (ROW,)) -> Any:
    return datasets.Dataset.from_list(list(rows), features=datasets.Features(HOTPOTQA))


def nothing(count: int) -> None:
    """Progress that nobody looks at."""


def saved_folder(folder: Path) -> Path:
    datasets.DatasetDict({"validation": hotpotqa(), "train": hotpotqa([{**ROW, "id": "t"}])}).save_to_disk(folder)
    return folder


def saved_split(folder: Path) -> Path:
    hotpotqa().save_to_disk(folder)
    return folder


def repository(folder: Path) -> Path:
    """As the hub keeps it: a folder for each configuration, a file or more for each split."""
    for config, rows in (("distractor", [ROW, {**ROW, "id": "5b"}]), ("fullwiki", [{**ROW, "id": "f"}])):
        for number, row in enumerate(rows):
            file = folder / config / f"validation-{number:05}-of-{len(rows):05}.parquet"
            file.parent.mkdir(parents=True, exist_ok=True)
            hotpotqa([row]).to_parquet(file)
    hotpotqa([{**ROW, "id": "t"}]).to_parquet(folder / "distractor" / "train-00000-of-00001.parquet")
    return folder


def single_file(folder: Path) -> Path:
    return repository(folder) / "distractor" / "validation-00000-of-00002.parquet"


@pytest.mark.parametrize("form", [saved_folder, saved_split, repository, single_file])
def test_every_form_on_disk_gives_the_authors_records(tmp_path: Path, form: Any) -> None:
    found = [hub.original(row) for row in hub.rows(form(tmp_path / "hub"), HUB)]
    assert found[0] == ORIGINAL
    assert [record["_id"] for record in found] == (["5a", "5b"] if form is repository else ["5a"])


def test_a_converted_file_is_read_as_the_authors_file_is(tmp_path: Path) -> None:
    written, own = tmp_path / "hotpot_dev_distractor_v1.json", tmp_path / "own.json"
    assert hub.write(hub.rows(repository(tmp_path / "hub"), HUB), written, nothing) == 2
    own.write_text(json.dumps([ORIGINAL, {**ORIGINAL, "_id": "5b"}]), encoding="utf-8")
    read = [
        list(
            HotpotQA(
                "hotpotqa", str(file), "dev", {"dev": ("x",)}, None, "hotpotqa", "hotpotqa", {"bridge": 2}, None
            ).questions()
        )
        for file in (written, own)
    ]
    assert read[0] == read[1]
    assert len(read[0]) == 2


@pytest.mark.parametrize("nested", [True, False], ids=["records of lists", "lists of records"])
def test_musique_is_converted_to_lines(tmp_path: Path, nested: bool) -> None:
    """Depending on how it was uploaded, the hub keeps paragraphs either way."""
    row = dict(MUSIQUE_ROW)
    if nested:
        for key in ("paragraphs", "question_decomposition"):
            row[key] = {name: [record[name] for record in row[key]] for name in row[key][0]}
    datasets.Dataset.from_list([row]).save_to_disk(tmp_path / "hub")
    target = tmp_path / "musique_ans_v1.0_dev.jsonl"
    hub.write(hub.rows(tmp_path / "hub", HUB), target, nothing)
    assert [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()] == [MUSIQUE_ROW]
    (question,) = MuSiQue("musique", str(target), "dev", {"dev": ("x",)}, None, "musique", "musique").questions()
    assert question.answers == ("Ann", "Anne")
    assert question.support == {question.passages[1].id}


@pytest.mark.parametrize(
    "evidences",
    [
        [["C", "born", "1900"]],
        [{"fact": "C", "relation": "born", "entity": "1900"}],
        {"fact": ["C"], "relation": ["born"], "entity": ["1900"]},
    ],
)
def test_evidences_of_2wiki_are_kept_in_every_form(evidences: Any) -> None:
    assert hub.original({**ROW, "evidences": evidences})["evidences"] == [["C", "born", "1900"]]


def test_a_record_in_the_authors_form_stays_as_it_is() -> None:
    assert hub.original(ORIGINAL) == ORIGINAL


@pytest.mark.parametrize(
    ("form", "split", "said"),
    [
        (saved_folder, "test", "no split test, only validation, train"),
        (repository, "test", "neither written by save_to_disk nor a folder with test"),
        (Path.mkdir, "validation", "neither written by save_to_disk"),
    ],
)
def test_what_is_not_there_is_named(tmp_path: Path, form: Any, split: str, said: str) -> None:
    form(tmp_path / "hub")
    with pytest.raises(DataError) as raised:
        list(hub.rows(tmp_path / "hub", HUB.model_copy(update={"split": split})))
    assert said in str(raised.value)
    assert "hotpotqa/hotpot_qa, distractor" in str(raised.value)


def test_a_broken_file_is_refused_and_no_target_is_left(tmp_path: Path) -> None:
    file = single_file(tmp_path / "hub")
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(DataError):
        hub.write(hub.rows(file, HUB), tmp_path / "out" / "dev.json", nothing)
    assert not list((tmp_path / "out").iterdir())


def test_another_data_set_is_refused(tmp_path: Path) -> None:
    datasets.Dataset.from_list([{"text": "x", "label": 1}]).save_to_disk(tmp_path / "hub")
    with pytest.raises(DataError, match="a row with text, label is of no known data set"):
        hub.write(hub.rows(tmp_path / "hub", HUB), tmp_path / "dev.json", nothing)


def test_no_rows_are_no_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no rows"):
        hub.write(iter(()), tmp_path / "dev.json", nothing)
    assert not (tmp_path / "dev.json").exists()


def test_the_hub_itself_is_not_reached_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(DataError, match="hotpotqa/hotpot_qa"):
        list(hub.rows(None, HUB))
