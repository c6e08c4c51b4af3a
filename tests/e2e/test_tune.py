"""`kgqa tune`: values chosen on dev questions, and measured on test questions."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.predictions import question_ids
from kgqa.engines.scripted import Scripted
from kgqa.errors import EngineDied
from tests.e2e.conftest import DEMO, QUICK, Kgqa, Ran, before_each_call, refused

IRCOT = ["tune", "method=ircot", "method.scope=own", "method.passages_per_step=1,4", *QUICK]


def record(ran: Ran) -> Any:
    return json.loads(ran.folder.read_text())


@pytest.mark.slow
def test_best_on_dev_runs_on_other_questions(kgqa: Kgqa) -> None:
    command = [*IRCOT, "tune.metric=support_recall", "tune.dev=3", "tune.test=4"]
    saved = record(kgqa(*command))
    dev, test = saved["dev"]["ids"], saved["test"]["ids"]
    assert (len(dev), len(test)) == (3, 4)
    assert not set(dev) & set(test)
    tried = saved["tried"]
    assert [question_ids(Path(each["run"])) for each in tried] == [dev, dev]
    best = max(tried, key=lambda each: each["score"]["mean"])
    assert saved["tried"][saved["chosen"]] == best
    assert best["settings"] == "method.passages_per_step=4"
    (measured,) = saved["tested"]
    assert question_ids(Path(measured["run"])) == test
    assert "passages_per_step: 4" in (Path(measured["run"]) / "config.yaml").read_text()
    assert (saved["mean"], saved["std"]) == (measured["score"]["mean"], None)
    assert record(kgqa(*command)) == saved
    assert record(kgqa(*command, "tune.seed=1"))["dev"]["ids"] != dev


@pytest.mark.slow
def test_equal_scores_and_made_up_replies_are_named(kgqa: Kgqa) -> None:
    ran = kgqa(*IRCOT, "tune.metric=em", "tune.dev=2", "tune.test=2")
    words = " ".join(ran.out.split())
    assert "2 settings have the best score. The first of them was chosen." in words
    assert "engine=scripted calls no model, so the scores are meaningless" in words
    assert "method.passages_per_step=1 (chosen)" in words


@pytest.mark.slow
def test_tables_have_the_label_of_the_score(kgqa: Kgqa) -> None:
    ran = kgqa(*IRCOT, "tune.metric=support_recall", "tune.dev=2", "tune.test=2")
    assert "support recall chosen on dev, measured on test" in ran.out
    assert "support_recall" not in ran.out
    report = ran.folder.with_name("report.html")
    assert f"report of the dev cells: {report}" in ran.out
    assert report.is_file()


@pytest.mark.slow
def test_sets_of_examples_give_mean_and_deviation(kgqa: Kgqa) -> None:
    ran = kgqa(*IRCOT, "tune.metric=support_recall", "tune.dev=2", "tune.test=3", "tune.sets=1,2,3")
    result = record(ran)
    means = [each["score"]["mean"] for each in result["tested"]]
    assert len(means) == 3
    assert result["mean"] == pytest.approx(sum(means) / 3)
    assert result["std"] == pytest.approx(
        (sum((m - result["mean"]) ** 2 for m in means) / 2) ** 0.5
    )
    assert "mean ± standard deviation" in ran.out


@pytest.mark.slow
def test_dev_has_its_own_file_and_metrics_own_records(kgqa: Kgqa) -> None:
    lines = DEMO.read_text().splitlines()
    for name, some in (("whole", lines), ("rest", lines[3:]), ("first", lines[:3])):
        Path(f"{name}.jsonl").write_text("\n".join(some))
    command = [*IRCOT, "tune.metric=f1", "tune.dev_path=first.jsonl", "tune.test=2"]
    own = kgqa(*command, "dataset.path=rest.jsonl")
    assert record(own)["dev"]["questions"] == 3
    assert record(own)["dev"]["sha256"] != record(own)["test"]["sha256"]
    refused(kgqa(*command, "dataset.path=whole.jsonl"), "3 questions are also in dev")
    assert kgqa(*command, "dataset.path=rest.jsonl", "tune.metric=em").folder != own.folder
    named = [*IRCOT, "tune.metric=f1", "tune.test=2"]
    record(kgqa(*named, "tune.dev=2", "tune.name=mine"))
    other = kgqa(*named, "tune.dev=3", "tune.name=mine-test")
    assert "mine-test contains another sweep" in other.err
    assert "tune.name=" in other.err


@pytest.mark.slow
def test_failed_cell_on_dev_is_in_the_exit_code(
    kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die_with_rules(engine: Scripted, _: Any) -> None:
        if engine.rules:
            raise EngineDied("no memory left")

    before_each_call(monkeypatch, die_with_rules)
    Path("rules.jsonl").write_text('{"match": "never", "reply": "none"}\n')
    ran = kgqa(
        *IRCOT[:3],
        "engine.rules=rules.jsonl,null",
        *QUICK,
        "tune.metric=f1",
        "tune.dev=2",
        "tune.test=2",
    )
    assert ran.code == 2
    saved = json.loads(ran.folder.read_text())
    assert [each["status"] for each in saved["tried"]] == ["failed", "done"]
    assert [each["status"] for each in saved["tested"]] == ["done"]


SEARCH = [
    "run", "-m", "method=ircot", "method.scope=own", "method.passages_per_step=range(1,6)", "method.reader=direct,cot",
    "limit=2", "hydra/sweeper=optuna", "sweep.metric=support_recall", "hydra.sweeper.n_trials=4", *QUICK,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(find_spec("optuna") is None, reason="needs kgqa[optuna]")
def test_optuna_proposes_cells_and_resumes(kgqa: Kgqa) -> None:
    ran = kgqa(*SEARCH)
    assert ran.code == 0, ran.err
    assert "best support_recall:" in ran.out
    cells = ran.json("sweep.json")["cells"]
    assert len(cells) == 4
    assert all(
        "method.reader=" in cell["name"] and "method.passages_per_step=" in cell["name"]
        for cell in cells
    )
    assert (ran.folder / "report.html").is_file()
    again = kgqa(*SEARCH, "max_parallel_questions=2")  # changes no answer
    assert again.folder == ran.folder
    assert "cells: 4 done before" in again.out
    assert [cell["run"] for cell in again.json("sweep.json")["cells"]] == [
        cell["run"] for cell in cells
    ]


@pytest.mark.skipif(find_spec("optuna") is None, reason="needs kgqa[optuna]")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("seed=1,2 sweep.metric=f1", "hydra.sweeper.n_trials=: must be an integer"),
        ("seed=1,2 hydra.sweeper.n_trials=2", "sweep.metric= is missing: choose from"),
        ("hydra.sweeper.n_trials=2 sweep.metric=f1", "no values to search"),
        ("seed=1,2 hydra.sweeper.n=3", "not a key of hydra/sweeper=optuna"),
        (
            "seed=1,2 hydra.sweeper.n_trials=2 hydra.sweeper.seed=x",
            "hydra.sweeper.seed=x: must be an integer",
        ),
    ],
)
def test_incomplete_search_is_one_line(kgqa: Kgqa, words: str, message: str) -> None:
    refused(kgqa("run", "-m", "hydra/sweeper=optuna", *words.split(), *QUICK), message)
