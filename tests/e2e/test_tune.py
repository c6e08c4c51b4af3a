"""Hyperparameters chosen on dev, measured on test; and searched by Optuna."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import QUICK, Kgqa, Ran

IRCOT = ["tune", "method=ircot", "method.scope=own", "method.passages_per_step=1,4", *QUICK]


def record(ran: Ran) -> Any:
    assert ran.code == 0, ran.err
    return json.loads(Path(ran.out.strip().splitlines()[-1]).read_text())


def answered(run: str) -> list[str]:
    lines = (Path(run) / "predictions.jsonl").read_text().splitlines()
    return [json.loads(line)["question_id"] for line in lines]


def test_the_best_on_dev_is_run_on_test_and_no_question_is_in_both(kgqa: Kgqa) -> None:
    kept = record(kgqa(*IRCOT, "tune.metric=support_recall", "tune.dev=3", "tune.test=4"))
    dev, test = kept["dev"]["ids"], kept["test"]["ids"]
    assert (len(dev), len(test)) == (3, 4)
    assert not set(dev) & set(test)
    tried = kept["tried"]
    assert [answered(each["run"]) for each in tried] == [dev, dev]
    best = max(tried, key=lambda each: each["score"]["mean"])
    assert kept["chosen"]["settings"] == best["settings"] == "method.passages_per_step=4"
    (measured,) = kept["result"]["runs"]
    assert answered(measured["run"]) == test
    assert "passages_per_step: 4" in (Path(measured["run"]) / "config.yaml").read_text()
    assert kept["result"]["mean"] == measured["score"]["mean"]
    assert kept["result"]["std"] is None


def test_tuning_again_asks_nothing_and_another_seed_takes_other_questions(kgqa: Kgqa) -> None:
    command = [*IRCOT, "tune.metric=f1", "tune.dev=2", "tune.test=2"]
    first, again = record(kgqa(*command)), record(kgqa(*command))
    assert again == first
    other = record(kgqa(*command, "tune.seed=1"))
    assert other["dev"]["ids"] != first["dev"]["ids"]


def test_several_demonstration_sets_give_mean_and_deviation(kgqa: Kgqa) -> None:
    ran = kgqa(*IRCOT, "tune.metric=support_recall", "tune.dev=2", "tune.test=3", "tune.sets=1,2,3")
    result = record(ran)["result"]
    means = [each["score"]["mean"] for each in result["runs"]]
    assert len(means) == 3
    assert result["mean"] == pytest.approx(sum(means) / 3)
    assert result["std"] == pytest.approx((sum((m - result["mean"]) ** 2 for m in means) / 2) ** 0.5)
    assert "mean ± standard deviation" in ran.out


def test_dev_questions_can_be_listed_or_have_a_file_of_their_own(kgqa: Kgqa) -> None:
    Path("dev.txt").write_text("2hop__demo_02\n2hop__demo_01\n")
    listed = record(kgqa(*IRCOT, "tune.metric=f1", "tune.dev_ids=dev.txt", "tune.test=2"))
    assert listed["dev"]["ids"] == ["2hop__demo_01", "2hop__demo_02"]
    from kgqa.experiment.session.experiment import Experiment

    lines = Experiment.of(["dataset=demo"]).dataset.file.read_text().splitlines()
    whole, rest = Path("whole.jsonl"), Path("rest.jsonl")
    whole.write_text("\n".join(lines))
    rest.write_text("\n".join(lines[3:]))
    first = Path("first.jsonl")
    first.write_text("\n".join(lines[:3]))
    own = record(kgqa(*IRCOT, "tune.metric=f1", "tune.dev_path=first.jsonl", "tune.test=2", "dataset.path=rest.jsonl"))
    assert own["dev"]["questions"] == 3
    assert own["dev"]["sha256"] != own["test"]["sha256"]
    shared = kgqa(*IRCOT, "tune.metric=f1", "tune.dev_path=first.jsonl", "tune.test=2", "dataset.path=whole.jsonl")
    assert shared.code == 2
    assert "is in dev and in test" in shared.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tune.metric=ff", "tune.dev=2"], "tune.metric=ff: choose from em, f1"),
        (["tune.metric=f1"], "tune.dev: say how many"),
        (["tune.metric=f1", "tune.dev=5000"], "tune.dev=5000: only"),
        (["tune.metric=f1", "tune.dev=36"], "tune.test=None: only 0 questions are left"),
        (["tune.metric=f1", "tune.dev=two"], "tune.dev=two: must be a number"),
        (["tune.metric=f1", "tune.devs=2"], "did you mean dev"),
        (["tune.metric=f1", "tune.dev=2", "seed=1,2"], "seed: is no hyperparameter"),
        (["tune.metric=f1", "tune.dev_ids=nowhere.txt"], "nowhere.txt"),
        (["tune.metric=judge", "tune.dev=2", "tune.test=2"], "give judge=NAME"),
        (["tune.metric=recall@few", "tune.dev=2"], "tune.metric=recall@few: choose from em, f1"),
        (["tune.metric=f1", "tune.dev=2", "profile=trace,musique"], "profile: is no hyperparameter"),
        (["tune.metric=f1", "tune.dev=2", "judge=three_way", "judge.votes=1,3"], "judge.votes: is no hyperparameter"),
        (["tune.metric=f1", "tune.dev=2", "limit=9"], "which questions are asked is for tune.dev="),
        (["tune.metric=f1", "tune.dev=2", "name=x"], "give tune.name="),
    ],
)
def test_bad_input_ends_in_one_line(kgqa: Kgqa, arguments: list[str], said: str) -> None:
    ran = kgqa(*IRCOT, *arguments)
    assert ran.code == 2
    assert said in ran.err
    assert ran.err.count("\n") == 1


def test_another_metric_or_test_has_a_record_of_its_own(kgqa: Kgqa) -> None:
    command = [*IRCOT, "tune.dev=2", "tune.test=2"]
    first = kgqa(*command, "tune.metric=f1", "tune.name=mine")
    record(first)
    refused = kgqa(*command, "tune.metric=em", "tune.name=mine")
    assert refused.code == 2
    assert "the record of another metric, test or sets; give another tune.name=" in refused.err
    places = {kgqa(*command, f"tune.metric={metric}").folder for metric in ("f1", "em")}
    assert len(places) == 2


def test_a_failed_cell_on_dev_is_told_by_the_exit_code(kgqa: Kgqa) -> None:
    ran = kgqa(*IRCOT[:3], "engine.rules=nowhere.jsonl,null", *QUICK, "tune.metric=f1", "tune.dev=2", "tune.test=2")
    assert ran.code == 2
    kept = json.loads(ran.folder.read_text())
    assert [each["status"] for each in kept["tried"]] == ["failed", "done"]
    assert [each["status"] for each in kept["result"]["runs"]] == ["done"]


def test_nothing_to_choose_from_is_said(kgqa: Kgqa) -> None:
    ran = kgqa("tune", "method=ircot", "tune.metric=f1", "tune.dev=2", *QUICK)
    assert "nothing to choose from" in ran.err


SEARCH = [
    "run", "-m", "method=ircot", "method.scope=own", "method.passages_per_step=range(1,6)", "method.reader=direct,cot",
    "limit=2", "hydra/sweeper=optuna", "sweep.metric=support_recall", "hydra.sweeper.n_trials=4", *QUICK,
]  # fmt: skip


@pytest.mark.skipif(find_spec("optuna") is None, reason="needs kgqa[optuna]")
def test_optuna_proposes_cells_and_the_same_command_goes_on(kgqa: Kgqa) -> None:
    ran = kgqa(*SEARCH)
    assert ran.code == 0, ran.err
    assert "best support_recall:" in ran.out
    cells = ran.json("sweep.json")["cells"]
    assert len(cells) == 4
    assert all("method.reader=" in cell["name"] and "method.passages_per_step=" in cell["name"] for cell in cells)
    assert (ran.folder / "report.html").is_file()
    again = kgqa(*SEARCH)
    assert again.folder == ran.folder
    assert "cells: 4 skipped" in again.out
    assert again.json("sweep.json")["cells"] == cells


@pytest.mark.skipif(find_spec("optuna") is None, reason="needs kgqa[optuna]")
def test_a_search_says_what_it_lacks(kgqa: Kgqa) -> None:
    sweeper = "hydra/sweeper=optuna"
    assert "hydra.sweeper.n_trials=20" in kgqa("run", "-m", "seed=1,2", sweeper, "sweep.metric=f1", *QUICK).err
    trials = "hydra.sweeper.n_trials=2"
    assert "sweep.metric=: choose from" in kgqa("run", "-m", "seed=1,2", sweeper, trials, *QUICK).err
    assert "nothing to search" in kgqa("run", "-m", sweeper, trials, "sweep.metric=f1", *QUICK).err
    assert (
        "not a key of hydra/sweeper=optuna" in kgqa("run", "-m", "seed=1,2", sweeper, "hydra.sweeper.n=3", *QUICK).err
    )
