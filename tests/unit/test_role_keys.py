"""Keys of a role's model and engine, and the server of a judge."""

from __future__ import annotations

from typing import Any

import pytest

from kgqa.config.building import build_part
from kgqa.config.composing import compose
from kgqa.errors import ConfigError
from kgqa.experiment.composing import choose_nodes
from kgqa.experiment.engines import RoleBinding, judge_nodes, role_nodes
from kgqa.judge.judges import AnyJudge

RUN = ("model=qwen3_8b", "engine=vllm", "method=no_context", "dataset=demo")
LOCAL = "http://127.0.0.1:8000/v1"
SERVER = ("model=gpt_4o_mini", f"server={LOCAL}", "engine.server=vllm")


def bind_role(role: str, *overrides: str, run: tuple[str, ...] = RUN) -> RoleBinding:
    return role_nodes(compose([*run, *overrides]), choose_nodes)[role]


def bind_judge(*overrides: str, run: tuple[str, ...] = RUN) -> RoleBinding:
    config = compose([*run, *overrides])
    return judge_nodes(config, build_part(config["judge"], "judge", AnyJudge), choose_nodes)[
        "judge"
    ]


@pytest.mark.parametrize(
    "overrides",
    [
        ("roles.reader=qwen3_4b", "roles.reader.engine.tensor_parallel=2"),
        ("roles.reader.engine.tensor_parallel=2", "roles.reader=qwen3_4b"),
        ("roles.reader.model=qwen3_4b", "roles.reader.engine.tensor_parallel=2"),
        (
            "roles.reader.model=qwen3_4b",
            "roles.reader.engine=vllm",
            "roles.reader.engine.tensor_parallel=2",
        ),
        ("roles.reader=qwen3_4b@vllm", "roles.reader.engine.tensor_parallel=2"),
    ],
    ids=["short form", "short form last", "model", "engine by name", "engine of the short form"],
)
def test_role_has_its_model_and_settings(overrides: tuple[str, ...]) -> None:
    binding = bind_role("reader", *overrides)
    assert binding.model["name"] == "qwen3_4b"
    assert binding.engine["_target_"].endswith("Vllm")
    assert binding.engine["tensor_parallel"] == 2


def test_role_can_change_only_its_engine() -> None:
    binding = bind_role("reader", "roles.reader.engine.tensor_parallel=2", "engine.max_num_seqs=7")
    assert binding.model["name"] == "qwen3_8b"
    assert (binding.engine["tensor_parallel"], binding.engine["max_num_seqs"]) == (2, 7)


@pytest.mark.parametrize("choice", ["qwen3_4b", "qwen3_4b@vllm"])
def test_roles_on_the_same_engine_have_its_keys(choice: str) -> None:
    binding = bind_role("reader", f"roles.reader={choice}", "engine.gpu_memory_utilization=0.4")
    assert binding.engine["gpu_memory_utilization"] == 0.4


def test_role_on_another_engine_has_its_defaults() -> None:
    binding = bind_role("reader", "roles.reader=qwen3_4b@transformers", "engine.max_model_len=512")
    assert binding.engine["_target_"].endswith("Transformers")
    assert binding.engine["max_model_len"] is None


def test_judge_has_its_own_settings() -> None:
    binding = bind_judge(
        "judge=three_way",
        "roles.judge.model=llama3_3_70b_instruct",
        "roles.judge.engine.tensor_parallel=4",
    )
    assert binding.model["hub"] == "meta-llama/Llama-3.3-70B-Instruct"
    assert binding.engine["tensor_parallel"] == 4


@pytest.mark.parametrize(
    ("overrides", "variable"),
    [
        (("judge.server=http://10.0.0.7:8000/v1",), "JUDGE_API_KEY"),
        (("judge.server=http://10.0.0.7:8000/v1", "judge.api_key_env=OTHER_KEY"), "OTHER_KEY"),
        (("judge.server=https://api.openai.com/v1",), "OPENAI_API_KEY"),
        ((f"judge.server={LOCAL}",), "OPENAI_API_KEY"),
    ],
    ids=["own server", "own variable", "openai", "server of the run"],
)
def test_judge_has_its_own_server_and_key(overrides: tuple[str, ...], variable: str) -> None:
    judge = ("judge=three_way", "judge.model=gpt_4o_mini", "roles.judge.engine.server=hosted")
    binding = bind_judge(*judge, *overrides, run=(*RUN[2:], *SERVER))
    assert binding.engine["base_url"] == overrides[0].partition("=")[2]
    assert binding.engine["api_key_env"] == variable


@pytest.mark.parametrize(
    ("bind", "overrides", "key"),
    [
        (
            bind_judge,
            ("judge=three_way", "judge.model=gpt_4o_mini@openai"),
            "judge.model=.*judge.server=URL",
        ),
        (
            bind_judge,
            ("judge=three_way", "judge.model=gpt_4o_mini"),
            "judge.model=.*judge.server=URL",
        ),
        (
            lambda *overrides, **run: bind_role("reader", *overrides, **run),
            ("roles.reader=gpt_4o_mini@openai",),
            "roles.reader=.*roles.reader.engine.base_url=URL",
        ),
    ],
    ids=["judge", "hosted judge", "reader"],
)
def test_second_server_needs_an_address(bind: Any, overrides: tuple[str, ...], key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}.*_API_KEY"):
        bind(*overrides, run=(*RUN[2:], *SERVER))


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("roles.reader.nonsense=1", "roles.reader.nonsense: unknown key"),
        ("roles.reader.engine.nonsense=1", "nonsense"),
        ("roles.nonsense.engine.tensor_parallel=1", "roles.nonsense"),
    ],
    ids=["key of a role", "key of an engine", "role"],
)
def test_wrong_key_of_a_role_is_an_error(override: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        bind_role("reader", override)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("roles.reader.engine={tensor_parallel: 2}", r"roles\.reader\.engine must be one name"),
        ("roles.reader.engine=[vllm]", r"roles\.reader\.engine must be one name"),
        ("roles.reader.model={name: qwen3_4b}", r"roles\.reader\.model must be one name"),
        ("roles.reader={engine: [vllm]}", r"roles\.reader\.engine must be one name or settings"),
    ],
    ids=["engine as a mapping", "engine as a list", "model as a mapping", "list in a mapping"],
)
def test_wrong_type_of_a_role_key_is_named(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compose([*RUN, override])
