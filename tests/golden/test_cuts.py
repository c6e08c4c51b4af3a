"""The questions of docs/RESULTS.md, cut from files in the official form: the same records in the same order."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from kgqa.config.building import build
from kgqa.config.keys import load_node
from kgqa.datasets.download import read_ids
from kgqa.errors import DataError
from kgqa.runtime.display import QUIET
from kgqa.system.downloads import fetch_dataset, list_sources
from kgqa.util import jsonio
from tests.golden.test_readers import DATA, FILES

CUTS = ("hotpotqa", "2wiki", "musique")


def write_official(folder: Path, name: str, records: list[Any]) -> None:
    """Write the files of an entry with a part of the records each, in another order and between other records."""
    (folder / list_sources()[name].folder).mkdir(parents=True, exist_ok=True)
    for file in list_sources()[name].makes:
        part = records[1::2] if "train" in file else records[::2] if "dev" in file else []
        others = [
            {**record, "id": f"other {n}", "_id": f"other {n}"}
            for n, record in enumerate(records[:7])
        ]
        mixed = [*part, *others]
        random.Random(file).shuffle(mixed)
        text = "\n".join(map(json.dumps, mixed)) if file.endswith("l") else json.dumps(mixed)
        (folder / list_sources()[name].folder / file).write_text(text, encoding="utf-8")


@pytest.mark.parametrize("name", CUTS)
def test_cut_equals_the_questions_of_the_results(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = DATA / FILES[name][0]
    if not original.is_file():
        pytest.skip(f"no {original.name}: KGQA_DATA names no folder with it")
    records = [record for _, record in jsonio.stream_records(original)]
    if [record.get("_id") or record["id"] for record in records] != read_ids(f"{name}.txt"):
        pytest.skip(f"{original.name} is another edition")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KGQA_DATA", raising=False)
    part = list_sources()[f"results_{name}"].cut
    assert part is not None
    for entry in part.entries:
        write_official(Path("data"), entry, records)
    fetch_dataset(f"results_{name}", QUIET)
    monkeypatch.setenv("KGQA_DATA", "data/results")
    dataset = build(load_node("dataset", name), "dataset")
    assert [record for _, record in jsonio.stream_records(dataset.file)] == records
    assert dataset.file == Path("data/results/questions") / list_sources()[f"results_{name}"].file


def test_missing_record_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KGQA_DATA", raising=False)
    first, *others = read_ids("musique.txt")
    write_official(Path("data"), "musique", [{"id": key} for key in others])
    with pytest.raises(
        DataError,
        match=rf"musique_ans_v1.0_train.jsonl: no record {first} \(1 of 160 are missing\)",
    ):
        fetch_dataset("results_musique", QUIET)
    assert not Path("data/results").exists()
