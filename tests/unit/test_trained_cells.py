"""Cells that need something trained: each names what, what makes it, and runs with what a person has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from kgqa.artifacts.examples import Recipe
from kgqa.cli.commands import parse
from kgqa.config import building as parts
from kgqa.config.composing import compose
from kgqa.config.overrides import parse_role
from kgqa.errors import ConfigError
from kgqa.experiment.engines import choose_nodes
from kgqa.reproduce.cells import PlannedCell, plan_cells
from kgqa.reproduce.running import ReproduceRequest
from kgqa.reproduce.tables import load_table, table_ids
from kgqa.reproduce.trained_models import TrainingPlan, find_model
from kgqa.training.bootstrap import Bootstrap
from kgqa.training.train.request import TrainRequest
from tests.adapters_for_tests import write_lora

CELLS = 337  # with 28 means of a row's columns
TRAINED = [cell for id_ in table_ids() for cell in load_table(id_).cells if cell.availability == "needs training"]


def cell(table_id: str, only: str, *given: str) -> PlannedCell:
    (planned,) = plan_cells(load_table(table_id), given, only)
    return planned


def test_every_cell_that_needs_training_names_what_and_what_makes_it() -> None:
    assert len(TRAINED) == CELLS
    for each in TRAINED:
        assert each.trained, each
        for _, name in each.trained:
            assert find_model(name).what
            assert find_model(name).makes


def test_the_commands_of_every_model_are_ones_that_kgqa_takes() -> None:
    """They parse, and compose with what is in conf/; what the last one trains has the model's name."""
    for name in sorted({name for each in TRAINED for _, name in each.trained}):
        commands = [command for commands in TrainingPlan.of([name]).commands.values() for command in commands]
        for words in commands:
            args = parse(words)
            check_composes(words[0], tuple(args.positionals), tuple(args.overrides))
        command, words = commands[-1][0], commands[-1][1:]
        if command == "bootstrap":
            request = Bootstrap.of(words)
            [filter_] = request.settings.filter
            assert name in {
                request.adapter_name(filter_, k, role) for k in range(1, 5) for role in request.settings.train
            }
        if command == "train":
            training = TrainRequest.of(words[0], without_folder(words[1:]))
            assert training.name == name
            assert (None if training.training.learns_pairs else training.base.preset) == find_model(name).base


def without_folder(words: Sequence[str]) -> list[str]:
    """That of examples is there only once they are collected."""
    return [word for word in words if not word.startswith("train.examples=")]


@cache
def check_composes(command: str, places: tuple[str, ...], overrides: tuple[str, ...]) -> None:
    if command == "train":
        (recipe,) = places
        request = TrainRequest.of(recipe, without_folder(overrides))
        assert request.training.collect is not None
        collects, *words = request.training.collect.split()
        check_composes("collect", (collects,), (*words, *(o for o in overrides if not o.startswith("train."))))
    elif command in ("collect", "verify"):
        chosen = [f"collect={place}" for place in places] or ["verify=safe"]
        one = [word.partition(",")[0] if word.startswith("dataset=") else word for word in overrides]
        config = compose([*chosen, *one])
        assert parts.build_part(config["collect"], "collect", Recipe) if places else config["verify"]
    elif command == "bootstrap":
        assert Bootstrap.of(overrides).settings.rounds == 4
    else:
        compose(overrides)


def test_a_role_takes_weights_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "judge.gguf").touch()
    planned = cell(
        "safe/table12", "Synthetic Only? Qwen 3 4B,2Wiki", f"trained.safe_evaluator_synthetic={tmp_path}/judge.gguf"
    )
    assert f"roles.feedback=qwen3_8b:{tmp_path}/judge.gguf@llamacpp" in planned.overrides
    model, engine, *_ = choose_nodes("roles.feedback", f"qwen3_8b:{tmp_path}/judge.gguf@llamacpp", {})
    assert (model["name"], model["path"]) == ("qwen3_8b", f"{tmp_path}/judge.gguf")
    assert engine["_target_"] == "kgqa.engines.llamacpp.LlamaCpp"


def test_what_cannot_be_used_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file or folder, nor a preset"):
        cell("kgp/table2", "T5,MuSiQue", f"trained.kgp_t5={tmp_path}/nowhere")
    with pytest.raises(ConfigError, match=r"an adapter of a language model\. Name the folder of an encoder"):
        cell("kgp/table1", "DPR,MuSiQue", f"trained.dpr={write_lora(tmp_path / 'lora')}")
    with pytest.raises(ConfigError, match=r"no cell of kgp/table2 needs it\. Did you mean kgp_t5"):
        ReproduceRequest.of("kgp/table2", ["trained.kgp_t=x"])
    with pytest.raises(ConfigError, match=r"no cell of trace/table1 needs a trained model\. Remove it"):
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
    assert parse_role(choice) == parts
