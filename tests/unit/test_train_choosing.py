"""`kgqa train -m`: which of several trainings is chosen, and what cannot be compared. Nothing is trained here."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kgqa.artefacts.choosing import TrainingChoice
from kgqa.artefacts.trained import Losses, find_trained, prefer
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.collect.collecting import Collecting
from kgqa.experiment.train import choosing
from kgqa.experiment.train.choosing import Trainings, choose
from kgqa.experiment.train.request import TrainRequest
from kgqa.report.training import choice_sections
from kgqa.runtime.display import QUIET
from kgqa.storage import json_text
from kgqa.training.job import Outcome
from tests.unit.test_train_examples import file, lines
from tests.unit.test_train_folders import trained

RATES = "train.learning_rate=1e-5,5e-5,1e-4"


def given(folder: Path, *words: str) -> Trainings:
    examples = file(folder, lines(8))
    return Trainings.of("kgp_llama", [f"train.examples={examples}", "train.base=smollm2_135m", *words])


def outcome(each: Sequence[float]) -> Outcome:
    return Outcome(
        steps=3, examples=1, left_out=0, cut=0, trainable=1, parameters=2, tokens=3, seconds=1, peak_memory=1,
        device="CPU", processes=1, versions={}, held_out_loss=(2.4, sum(each) / len(each)),
        measured={"loss": ((2.4,) * len(each), tuple(each))},
    )  # fmt: skip


@pytest.fixture
def losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[float, Sequence[float]]:
    """The losses that a training comes to, of each held-out example, by its rate; with none it fails."""
    monkeypatch.chdir(tmp_path)
    wanted: dict[float, Sequence[float]] = {}

    def train(request: TrainRequest, examples: Any, command: Sequence[str], display: Any) -> Path:
        folder, each = request.folder(examples), wanted[request.training.learning_rate]
        if not each:
            raise DataError("the loss is no number any more;\nlower train.learning_rate")
        if not folder.is_dir():
            made = replace(trained(folder), losses=Losses(
                first=3, last=2, lowest=2, held_out_before=2.4, held_out_after=sum(each) / len(each),
            ))  # fmt: skip
            (folder / "outcome.json").write_text(json_text(outcome(each).json()))
            (folder / "manifest.json").write_text(json_text(made.json()))
        return folder

    monkeypatch.setattr(choosing, "train", train)
    return wanted


def test_the_lowest_held_out_loss_is_chosen_and_the_name_means_it(
    tmp_path: Path, losses: dict[float, Sequence[float]]
) -> None:
    losses |= {1e-5: (2.0, 2.2), 5e-5: (1.0, 1.2), 1e-4: (1.5, 1.5)}
    trainings = given(tmp_path, RATES)
    chosen = choose(trainings, trainings.examples(QUIET), QUIET)
    assert chosen.whole
    assert [(each.settings, each.loss) for each in chosen.record.tried] == [
        ("train.learning_rate=1e-05", 2.1), ("train.learning_rate=5e-05", 1.1), ("train.learning_rate=0.0001", 1.5),
    ]  # fmt: skip
    assert chosen.record.chosen == 1
    assert find_trained("kgp_llama").resolve() == chosen.folder.resolve()
    above = chosen.record.tried[0].above
    assert above is not None
    assert above == pytest.approx((1.0, 1.0, 1.0))
    assert chosen.record.tried[1].above is None
    (section,) = choice_sections(chosen.record)
    assert section.rows[1][:3] == ("→ train.learning_rate=5e-05", "1.1000", "")
    assert section.rows[2][2] == "+0.4000 [+0.3000, +0.5000]"
    assert TrainingChoice.read(chosen.file.parent) == chosen.record
    assert "The lowest of 3" in chosen.file.read_text(encoding="utf-8")


def test_of_equal_losses_the_first_is_chosen(tmp_path: Path, losses: dict[float, Sequence[float]]) -> None:
    losses |= {1e-5: (2.0,), 5e-5: (1.0,), 1e-4: (1.0,)}
    trainings = given(tmp_path, RATES)
    assert choose(trainings, trainings.examples(QUIET), QUIET).record.chosen == 1


def test_a_training_that_fails_stops_no_other(tmp_path: Path, losses: dict[float, Sequence[float]]) -> None:
    losses |= {1e-5: (), 5e-5: (1.0, 1.2), 1e-4: (1.5, 1.5)}
    trainings = given(tmp_path, RATES)
    chosen = choose(trainings, trainings.examples(QUIET), QUIET)
    assert not chosen.whole
    assert chosen.record.tried[0].error == "the loss is no number any more; lower train.learning_rate"
    assert chosen.record.chosen == 1
    assert choice_sections(chosen.record)[0].rows[0][1].startswith("failed: the loss is no number")
    losses |= {5e-5: (), 1e-4: ()}
    with pytest.raises(DataError, match="none of the 3 trainings has a held-out loss, the first: the loss is no"):
        choose(trainings, trainings.examples(QUIET), QUIET)


def test_the_chosen_one_counts_as_the_last_when_the_same_command_is_given_again(
    tmp_path: Path, losses: dict[float, Sequence[float]]
) -> None:
    losses |= {1e-5: (1.0,), 5e-5: (2.0,), 1e-4: (3.0,)}
    trainings = given(tmp_path, RATES)
    examples = trainings.examples(QUIET)
    first = choose(trainings, examples, QUIET)
    os.utime(first.folder / "manifest.json", (1, 1))
    assert find_trained("kgp_llama").resolve() != first.folder.resolve()
    again = choose(trainings, examples, QUIET)
    assert again.record == first.record
    assert find_trained("kgp_llama").resolve() == first.folder.resolve()


def test_the_chosen_one_counts_as_the_last_where_all_were_written_at_one_time(
    tmp_path: Path, losses: dict[float, Sequence[float]]
) -> None:
    losses |= {1e-5: (1.0,), 5e-5: (2.0,), 1e-4: (3.0,)}
    trainings = given(tmp_path, RATES)
    folders = [Path(each.folder) for each in choose(trainings, trainings.examples(QUIET), QUIET).record.tried]
    ahead = time.time_ns() + 10**9
    for folder in folders:
        for each in folders:
            os.utime(each / "manifest.json", ns=(ahead, ahead))
        prefer(folder)
        assert find_trained("kgp_llama").resolve() == folder.resolve()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train.rank=4"], r"nothing to choose from: give a key several values, e\.g\. train\.learning_rate=1e-5,5e-5"),
        (["train.seed=1,2"], r"train\.seed: held-out losses cannot be compared over it; train for one value"),
        (["train.max_length=256,512"], r"train\.max_length: held-out losses cannot be compared over it"),
        (["train.learning_rate=interval(1,2)"], "has no list of values"),
        (["train.ranks=4,8"], r"unknown key 'train\.ranks'; did you mean train\.rank"),
        (["train.rank=4,0"], r"train\.rank=0: must be at least 1"),
    ],
)
def test_what_cannot_be_compared_is_one_line(tmp_path: Path, words: list[str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        given(tmp_path, *words)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train.save_minutes=1,2"], r"train\.save_minutes=2: the same training as train\.save_minutes=1, so there"),
        (["train.rank=4,8", "train.held_out=0"], r"train\.held_out=0: nothing is held out to choose by"),
    ],
)
def test_what_leaves_nothing_to_choose_is_one_line(tmp_path: Path, words: list[str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        given(tmp_path, *words).examples(QUIET)


def test_examples_are_made_once_and_numbers_of_them_are_a_choice(tmp_path: Path, monkeypatch: Any) -> None:
    """The same questions are held out from few and from many."""
    monkeypatch.chdir(tmp_path)
    made = given(tmp_path, "train.rank=4,8").examples(QUIET)
    assert made[0] is made[1]
    collect = ["collect.agent=llama", "dataset=demo", "dry_run=true"]
    Collecting.of("kgp", collect[:2]).collect(QUIET, ["kgqa", "collect", "kgp"])
    few, many = Trainings.of("kgp_llama", ["train.examples=2,4", *collect[1:]]).examples(QUIET)
    assert (len(few.train), len(many.train)) == (2, 4)
    assert few.held_out == many.held_out
