"""dataset=kgp: the collections that KGP's authors released, of a file in their form."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kgqa.errors import ConfigError, DataError
from kgqa.experiment.experiment import Experiment
from kgqa.types import Question

RECORD = {
    "question": "In which town was the composer born?",
    "answer": "Fauskenes",
    "titles": ["The Herring Queen", "Asbjarne Lyngholt"],
    "docs": ["The Herring Queen is an opera. It is long.", "He was born in Fauskenes."],
    "docs_chunks": [["It is long.", "The Herring Queen is an opera."], ["He was born in Fauskenes."]],
    "title_chunks": [
        ["The Herring Queen", "It is long."],
        ["The Herring Queen", "The Herring Queen is an opera."],
        ["Asbjarne Lyngholt", "He was born in Fauskenes."],
        ["Asbjarne Lyngholt", "He was born in Fauskenes."],
    ],
    "supports": [["Asbjarne Lyngholt", "He was born in Fauskenes."], ["The Herring Queen", "Nobody says this."]],
}


def questions(folder: Path, *records: dict[str, Any], more: tuple[str, ...] = ()) -> Sequence[Question]:
    file = folder / "test_docs.json"
    file.write_text(json.dumps(records), encoding="utf-8")
    return Experiment.of(["engine=scripted", "dataset=kgp", f"dataset.path={file}", *more]).questions


def test_passages_and_support_are_the_files_own(tmp_path: Path) -> None:
    first, second = questions(tmp_path, RECORD, {**RECORD, "supports": RECORD["supports"][:1]})
    assert [(passage.title, passage.text) for passage in first.passages] == [
        ("The Herring Queen", "It is long."),
        ("The Herring Queen", "The Herring Queen is an opera."),
        ("Asbjarne Lyngholt", "He was born in Fauskenes."),
    ]
    assert first.support == {first.passages[2].id, "missing:The Herring Queen"}
    assert second.support == {second.passages[2].id}
    assert (first.id, second.id, first.answers) == ("0", "1", ("Fauskenes",))
    assert first.support_titles == {"The Herring Queen", "Asbjarne Lyngholt"}


def test_a_corpus_is_the_passages_of_all_questions(tmp_path: Path) -> None:
    other = {**RECORD, "title_chunks": [["Tveit", "Tveit is a fjord."]], "supports": []}
    questions(tmp_path, RECORD, other)
    dataset = Experiment.of(["engine=scripted", "dataset=kgp", f"dataset.path={tmp_path / 'test_docs.json'}"]).dataset
    assert [passage.title for passage in dataset.passages()][-1] == "Tveit"


def test_no_collection_is_made_of_a_collection(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"dataset=kgp has collections already\. Leave collection= out"):
        questions(tmp_path, RECORD, more=("collection=kgp",))
    setting = ("experiment=kgp_setting", "collection=null")
    assert len(questions(tmp_path, RECORD, more=setting)) == 1


def test_a_file_is_named_by_the_person_and_another_datasets_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="get the authors' file from https"):
        _ = Experiment.of(["engine=scripted", "dataset=kgp"]).questions
    with pytest.raises(DataError, match="no such file"):
        _ = Experiment.of(["engine=scripted", "dataset=kgp", f"dataset.path={tmp_path / 'nowhere.json'}"]).questions
    with pytest.raises(DataError, match="This looks like musique: run with dataset=musique"):
        questions(tmp_path, {"id": "1", "question": "?", "answer": "a", "paragraphs": []})
    with pytest.raises(DataError, match="no key 'supports'"):
        questions(tmp_path, {key: value for key, value in RECORD.items() if key != "supports"})
    with pytest.raises(DataError, match="no gold answer"):
        questions(tmp_path, {**RECORD, "answer": ""})
