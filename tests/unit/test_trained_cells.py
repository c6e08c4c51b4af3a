"""Cells that need something trained: each names what, what makes it, and runs with what a person has."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgqa.errors import ConfigError
from kgqa.experiment.config.overrides import role_choice
from kgqa.experiment.machine.availability import missing
from kgqa.experiment.reproduce.artefacts import artefact, artefacts
from kgqa.experiment.reproduce.cells import PlannedCell, planned_cells
from kgqa.experiment.reproduce.reading import load_table, table_ids
from kgqa.experiment.reproduce.request import ReproduceRequest
from kgqa.experiment.session.engines import chosen_nodes
from tests.adapters_for_tests import write_lora

TRAINED = [cell for id_ in table_ids() for cell in load_table(id_).cells if cell.availability == "needs training"]


def cell(table_id: str, only: str, *given: str) -> PlannedCell:
    (planned,) = planned_cells(load_table(table_id), given, only)
    return planned


def test_every_cell_that_needs_training_names_what_and_what_makes_it() -> None:
    assert len(TRAINED) > 200
    for each in TRAINED:
        assert each.trained, each
        for _, name in each.trained:
            assert artefact(name).what
            assert artefact(name).makes


def test_nothing_is_described_that_no_cell_needs() -> None:
    needed = {id(artefact(name)) for each in TRAINED for _, name in each.trained}
    assert needed == {id(described) for described in artefacts().values()}


def test_what_makes_an_artefact_is_said() -> None:
    assert artefact("knowtrace_2wiki_round3").made_by().endswith("bootstrap.filter=backtracing")
    first, second = artefact("kgp_t5").made_by().split("; ")
    assert first == "kgqa collect kgp"
    assert second == "kgqa train kgp_t5"
    why = cell("knowtrace/figure4", "MuSiQue? Non-Backtracing,3").why
    assert "trained.knowtrace_vanilla_musique_round3=PATH runs it with yours; made by: kgqa bootstrap" in why


def test_a_role_takes_weights_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "judge.gguf").touch()
    planned = cell(
        "safe/table12", "Synthetic Only? Qwen 3 4B,2Wiki", f"trained.safe_evaluator_synthetic={tmp_path}/judge.gguf"
    )
    assert f"roles.feedback=qwen3_8b:{tmp_path}/judge.gguf@llamacpp" in planned.overrides
    model, engine, *_ = chosen_nodes("roles.feedback", f"qwen3_8b:{tmp_path}/judge.gguf@llamacpp", {})
    assert (model["name"], model["path"]) == ("qwen3_8b", f"{tmp_path}/judge.gguf")
    assert engine["_target_"] == "kgqa.engines.llamacpp.LlamaCpp"


def test_a_role_takes_an_adapter(tmp_path: Path) -> None:
    lora = write_lora(tmp_path / "lora")
    planned = cell("safe/table12", "Synthetic Only? Qwen 3 4B,2Wiki", f"trained.safe_evaluator_synthetic={lora}")
    assert f"roles.feedback=qwen3_8b+{lora}@vllm" in planned.overrides


def test_a_role_takes_a_preset() -> None:
    planned = cell("kgp/table2", "T5,MuSiQue", "trained.kgp_t5=flan_t5_base", "engine=scripted")
    assert "roles.agent=flan_t5_base@scripted" in planned.overrides


def test_an_encoder_of_ones_own_is_looked_for_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    planned = cell("kgp/table1", "DPR,MuSiQue", f"trained.dpr={tmp_path}", "engine=scripted", "dataset=demo")
    assert f"retriever.encoder={tmp_path}" in planned.overrides
    assert planned.state == "run"
    assert missing(("retriever=dpr",))
    assert missing(("retriever=dpr", f"retriever.encoder.model={tmp_path}")) == []
    assert missing(("ranker=e5", f"ranker.model={tmp_path}")) == []


def test_of_two_that_are_needed_both_are_asked_for(tmp_path: Path) -> None:
    one = cell("kgp/figure6", "KNN-MDR,3", f"trained.mdr={tmp_path}", "engine=scripted")
    assert one.state == "needs training"
    assert "trained.kgp_t5=PATH" in one.why
    assert "trained.mdr=PATH" not in one.why
    trained = f"trained.mdr={tmp_path}", "trained.kgp_t5=flan_t5_base"
    both = cell("kgp/figure6", "KNN-MDR,3", *trained, "engine=scripted", "dataset=demo")
    assert both.state == "run"


def test_what_cannot_be_used_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file or folder, nor a preset"):
        cell("kgp/table2", "T5,MuSiQue", f"trained.kgp_t5={tmp_path}/nowhere")
    with pytest.raises(ConfigError, match="an adapter of a language model; give the folder of an encoder"):
        cell("kgp/table1", "DPR,MuSiQue", f"trained.dpr={write_lora(tmp_path / 'lora')}")
    with pytest.raises(ConfigError, match="no cell of kgp/table2 needs it; did you mean kgp_t5"):
        ReproduceRequest.of("kgp/table2", ["trained.kgp_t=x"])
    with pytest.raises(ConfigError, match="no cell of trace/table1 needs it; none of its cells"):
        ReproduceRequest.of("trace/table1", ["trained.kgp_t5=x"])


@pytest.mark.parametrize(
    ("choice", "parts"),
    [
        ("qwen3_8b", ("qwen3_8b", "", "", "")),
        ("qwen3_8b@vllm", ("qwen3_8b", "", "", "vllm")),
        ("qwen3_8b:/a/b", ("qwen3_8b", "/a/b", "", "")),
        ("qwen3_8b:/a/b@vllm", ("qwen3_8b", "/a/b", "", "vllm")),
        ("qwen3_8b:/me@home/c++/b", ("qwen3_8b", "/me@home/c++/b", "", "")),
        ("qwen3_8b+safe", ("qwen3_8b", "", "safe", "")),
        ("+knowtrace-hotpotqa/round4/explorer", ("", "", "knowtrace-hotpotqa/round4/explorer", "")),
        ("+safe@vllm", ("", "", "safe", "vllm")),
        ("qwen3_8b+/me@home/c:/c++/b@vllm", ("qwen3_8b", "", "/me@home/c:/c++/b", "vllm")),
    ],
)
def test_a_roles_choice_is_a_preset_its_weights_and_its_engine(choice: str, parts: tuple[str, ...]) -> None:
    assert role_choice(choice) == parts
