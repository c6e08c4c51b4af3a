"""A random part of a data set, and which of its splits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kgqa.errors import ConfigError, DataError
from kgqa.experiment.experiment import Experiment
from kgqa.experiment.manifest import manifest
from kgqa.experiment.session import Session
from kgqa.sweeps.tuning import Tuning, split_questions
from tests.unit.question_files import lines, musique_record


def ids(*overrides: str) -> list[str]:
    return [question.id for question in Experiment.of(["method=no_context", *overrides]).questions]


def test_a_sample_is_the_same_for_the_same_seed_whatever_else_is_chosen() -> None:
    everything, drawn = ids(), ids("sample=10", "seed=1")
    assert len(drawn) == 10
    assert drawn == [id_ for id_ in everything if id_ in drawn]  # in file order
    assert drawn == ids("sample=10", "seed=1", "method=golden", "max_parallel_questions=2", "model=gpt_4o_mini")
    assert drawn != ids("sample=10", "seed=2")
    assert set(drawn) < set(ids("sample=20", "seed=1"))
    assert drawn != everything[:10]
    assert ids("sample=10", "seed=1", "limit=3") == drawn[:3]


def test_more_than_there_are_is_refused() -> None:
    with pytest.raises(ConfigError, match="sample=37: only 36 questions to draw from; leave it out for all"):
        ids("sample=37")
    with pytest.raises(ConfigError, match="sample=0: must be at least 1"):
        ids("sample=0")


def test_a_sampled_run_is_a_run_of_its_own_and_says_which_questions_it_asked() -> None:
    assert (
        Experiment.of(["method=no_context", "sample=10"]).run_folder()
        != Experiment.of(["method=no_context"]).run_folder()
    )
    with Session(Experiment.of(["method=no_context", "sample=10", "seed=1", "limit=4"])) as session:
        written = manifest(session, None).json()["dataset"]
    assert list(written["sampled"]) == ids("sample=10", "seed=1")[:4]
    with Session(Experiment.of(["method=no_context", "limit=4"])) as session:
        assert "sampled" not in manifest(session, None).json()["dataset"]


def test_a_split_is_another_file(tmp_path: Path) -> None:
    for split in ("dev", "train"):
        record = json.dumps(musique_record(id=f"2hop__{split}"))
        (tmp_path / f"musique_ans_v1.0_{split}.jsonl").write_text(record, encoding="utf-8")
    here = ["dataset=musique", f"dataset.path={tmp_path}"]
    assert ids(*here) == ids(*here, "dataset.split=dev") == ["2hop__dev"]
    assert ids(*here, "dataset.split=train") == ["2hop__train"]
    assert (
        Experiment.of(["method=no_context", *here]).run_folder()
        == Experiment.of(["method=no_context", *here, "dataset.split=dev"]).run_folder()
        != Experiment.of(["method=no_context", *here, "dataset.split=train"]).run_folder()
    )


def test_a_split_that_is_not_there_is_told_with_what_brings_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KGQA_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"dataset\.split=test: no such split of dataset=2wiki; choose from: dev, "):
        ids("dataset=2wiki", "dataset.split=test")
    with pytest.raises(DataError, match="dataset=iirc, or another dataset of kgqa data list"):
        ids("dataset=iirc", "dataset.split=train")


def test_dev_may_be_of_another_split_than_test(tmp_path: Path) -> None:
    for split in ("dev", "train"):
        records = [musique_record(id=f"2hop__{split}{n}", question=f"{split} {n}?") for n in range(9)]
        lines(tmp_path, *records).rename(tmp_path / f"musique_ans_v1.0_{split}.jsonl")
    experiment = Experiment.of(["method=no_context", "dataset=musique", f"dataset.path={tmp_path}"])
    dev, test = split_questions(experiment, 4, 5, seed=0, dev_split="train")
    assert (len(dev.ids), len(test.ids)) == (4, 5)
    assert dev.file == str(tmp_path / "musique_ans_v1.0_train.jsonl")
    assert all("train" in id_ for id_ in dev.ids)
    assert all("dev" in id_ for id_ in test.ids)
    with pytest.raises(ConfigError, match=r"tune\.dev_path and tune\.dev_split: give one of them"):
        Tuning.of(["method.beam=3,5", "tune.metric=f1", "tune.dev_split=train", "tune.dev_path=x"])
