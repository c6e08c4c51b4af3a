"""What a configuration means, before anything is open."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgqa.config.composing import compose
from kgqa.config.files import find_sources
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.experiment import Experiment
from kgqa.experiment.session import Session


def test_nothing_is_read_before_it_is_asked_for(tmp_path: Path) -> None:
    experiment = Experiment.of([f"dataset.path={tmp_path / 'none.jsonl'}", "method=no_context"])
    assert experiment.choices["method"] == "no_context"
    with pytest.raises(DataError, match=r"none\.jsonl"):
        _ = experiment.questions


def test_a_run_is_named_by_what_can_change_an_answer() -> None:
    def folder(*overrides: str) -> Path:
        return Experiment.of(["method=no_context", "model=smollm2_135m", *overrides]).run_folder()

    assert folder() == folder("limit=2", "max_parallel_questions=3", "judge=kgp")
    assert folder() != folder("seed=3")
    assert folder("run_name=mine").parts[-4:] == ("demo", "no_context", "smollm2_135m", "mine")
    assert folder("output_dir=elsewhere") == Path("elsewhere")


def test_settings_say_who_gave_a_value_and_what_the_paper_has() -> None:
    given = ["experiment=quick", "method.chains=2", "method.max_answer_tokens=9", "ranker=lexical"]
    said = find_sources(compose(["method=trace", *given]))
    assert said["method.beam"] == "experiment=quick; paper: 5 (§C.4)"
    assert said["kg.demonstrations"].startswith("experiment=quick (TRACE Table 9); paper: adaptive (§C.4")
    assert said["method.chains"].startswith("set on the command line; paper: 5 (§C.4")
    assert said["method.max_answer_tokens"] == "set on the command line; default: 25 (not in the paper; released code)"
    assert said["method.min_probability"].startswith("not in the paper")


def test_an_own_model_needs_no_optional_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("conf/model").mkdir(parents=True)
    keys = "_target_: kgqa.engines.weights.Model\nname: mine\npath: mine.gguf\nhub: null\npackages: []\nsha256: null\n"
    Path("conf/model/mine.yaml").write_text(f"{keys}context: 512\n", encoding="utf-8")
    experiment = Experiment.of(["model=mine", "engine=scripted", "method=no_context"])
    assert "thinking" not in experiment.identity["model"]
    with Session(experiment) as session:
        assert session.engines.prices("reader") is None


def test_own_engine_file_can_set_the_address_of_its_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("conf/engine").mkdir(parents=True)
    lines = "defaults: [openai]\nbase_url: http://127.0.0.1:9/v1\nserved_model: mine\n"
    Path("conf/engine/mine.yaml").write_text(lines, encoding="utf-8")
    experiment = Experiment.of(["engine=mine", "model=gpt_4o_mini", "method=no_context"])
    assert experiment.config["engine"]["base_url"] == "http://127.0.0.1:9/v1"
    assert experiment.config["engine"]["served_model"] == "mine"
    with Session(experiment) as session:
        assert session.engines.prices("reader") is not None


def test_a_part_that_nothing_was_chosen_for_is_named() -> None:
    session = Session(Experiment.of(["method=no_context", "reranker=null"]))
    with pytest.raises(ConfigError, match=r"reranker=null: method=no_context needs one\. Choose from"):
        session.ranker("reranker")
