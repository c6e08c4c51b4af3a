"""The GPUs of a run, from its configuration to its engines. No weights and no GPU are needed."""

from __future__ import annotations

from typing import Any

import pytest

from kgqa.engines.vllm import Vllm
from kgqa.errors import ConfigError
from kgqa.experiment import gpu_plan
from kgqa.experiment.composing import compose_experiment
from kgqa.experiment.experiment import Experiment
from kgqa.experiment.session import Session
from kgqa.system.hardware import Gpu
from kgqa.util.settings import declared_fields

READER = (
    "dataset=demo",
    "method=retrieve_read",
    "model=llama3_1_8b_instruct",
    "engine=vllm",
    "engine.max_model_len=8192",
)
JUDGE = (
    "judge=three_way",
    "roles.judge=llama3_3_70b_instruct",
    "roles.judge.engine.max_model_len=8192",
)


@pytest.fixture(autouse=True)
def no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("kgqa.experiment.devices.list_gpus", tuple)


def compose(*overrides: str) -> Experiment:
    return compose_experiment([*READER, *overrides])


def test_without_gpus_nothing_is_planned() -> None:
    experiment = compose()
    assert experiment.gpu_plan.placement is None
    assert experiment.role_nodes[""].engine["devices"] is None


def test_stages_have_their_devices() -> None:
    experiment = compose(*JUDGE, "gpus=8")
    reader, judge = experiment.role_nodes[""].engine, experiment.judge_nodes["judge"].engine
    assert (reader["devices"], reader["tensor_parallel"], reader["data_parallel"]) == (
        [*range(8)],
        1,
        8,
    )
    assert (judge["devices"], judge["tensor_parallel"], judge["data_parallel"]) == (
        [*range(8)],
        4,
        2,
    )


@pytest.mark.parametrize(
    ("overrides", "parallel"),
    [
        (("engine.extra_args={pipeline_parallel_size:2}",), (1, 3)),
        (("engine.extra_args={pipeline_parallel_size:2}", "engine.tensor_parallel=3"), (3, 1)),
        (("engine.tensor_parallel=3",), (3, 2)),
        (("gpu_memory=24",), (1, 6)),
        (("gpu_memory=24", "engine.dtype=float32"), (2, 3)),
    ],
    ids=["stages", "stages that are split", "own split", "half precision", "float32"],
)
def test_copies_fit_on_the_gpus(overrides: tuple[str, ...], parallel: tuple[int, int]) -> None:
    engine = compose("gpus=6", *overrides).role_nodes[""].engine
    assert (engine["tensor_parallel"], engine["data_parallel"]) == parallel
    assert engine["devices"] == [*range(6)]


def test_encoder_and_reader_share_no_gpu() -> None:
    experiment = compose("gpus=4", "retriever=e5_base_v2")
    assert experiment.role_nodes[""].engine["devices"] == [0, 1, 2]
    node = experiment.chosen("retriever")
    assert (node["device"], node["encoder"]["device"]) == ("cuda:3", "cuda:3")


@pytest.mark.parametrize(
    ("gpus", "visible", "device"),
    [("[2,3]", None, "cuda:3"), ("[5,6]", "4,5,6", "cuda:2"), ("2", "4,5,6", "cuda:1")],
    ids=["of all", "of the visible ones", "number"],
)
def test_encoder_uses_a_gpu_of_the_run(
    monkeypatch: pytest.MonkeyPatch, gpus: str, visible: str | None, device: str
) -> None:
    monkeypatch.setattr(
        "kgqa.experiment.devices.list_gpus", lambda: 8 * (Gpu("H100", 80 << 30, "600"),)
    )
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    node = compose(f"gpus={gpus}", "retriever=e5_base_v2").chosen("retriever")
    assert node["encoder"]["device"] == device


def test_index_of_wikipedia_is_planned_by_its_name() -> None:
    search = ("retriever=e5_base_v2", "retriever.backend=flat", "dataset.corpus=wiki18_100w.jsonl")
    placement = compose("gpus=8", *search).gpu_plan.placement
    assert placement is not None
    (index,) = (each for each in placement.places if each.demand.name == gpu_plan.SEARCH)
    # 768 numbers in half precision for each of 21,015,324 passages
    assert index.demand.weights == gpu_plan.ENCODER + 21_015_324 * 768 * 2


def test_index_beside_a_model_on_one_gpu_leaves_it_less() -> None:
    search = ("retriever=e5_base_v2", "retriever.backend=flat", "dataset.corpus=wiki18_100w.jsonl")
    with pytest.raises(ConfigError, match=r"needs 32 GB of the only GPU.*utilization=0\.56 or ret"):
        _ = compose("gpus=1", *search).gpu_plan
    for key in ("engine.gpu_memory_utilization=0.5", "retriever.device=cpu"):
        assert compose("gpus=1", *search, key).gpu_plan.placement is not None


def test_gpus_in_use_by_others_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = [Gpu("H100", 80 << 30, "600", used << 30) for used in (0, 40, 2)]
    monkeypatch.setattr("kgqa.experiment.devices.list_gpus", lambda: tuple(cards))
    (line,) = compose().gpu_plan.lines()
    assert line == "in use by other processes: GPU 1 (43 GB). To leave them out: gpus=[0,2]"


def test_judge_with_the_readers_model_stays_loaded() -> None:
    experiment = compose("judge=three_way", "gpus=2")
    assert experiment.judge_nodes["judge"] == experiment.role_nodes[""]


@pytest.mark.parametrize(
    ("overrides", "visible", "devices"),
    [
        ((), "3,5", [3, 5]),
        ((), "GPU-7a,MIG-2b", ["GPU-7a", "MIG-2b"]),
        (("gpus=1",), "3,5", [3]),
        (("gpus=[5,6]",), None, [5, 6]),
        (("gpus=2",), None, [0, 1]),
        ((), None, [0, 1, 2]),
    ],
    ids=["numbers", "names", "some of them", "list", "number", "all"],
)
def test_visible_gpus_are_used(
    monkeypatch: pytest.MonkeyPatch,
    overrides: tuple[str, ...],
    visible: str | None,
    devices: list[Any],
) -> None:
    monkeypatch.setattr(
        "kgqa.experiment.devices.list_gpus", lambda: 3 * (Gpu("H100", 80 << 30, "600"),)
    )
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert compose(*overrides).role_nodes[""].engine["devices"] == devices


@pytest.mark.parametrize("hidden", ["", "-1", "-1,0"])
def test_hidden_gpus_are_not_planned(monkeypatch: pytest.MonkeyPatch, hidden: str) -> None:
    monkeypatch.setattr(
        "kgqa.experiment.devices.list_gpus", lambda: 3 * (Gpu("H100", 80 << 30, "600"),)
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert compose().gpu_plan.placement is None


def test_run_uses_no_gpu_that_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    with pytest.raises(ConfigError, match="gpus=4: only 2 visible"):
        _ = compose("gpus=4").gpu_plan
    assert compose("gpus=4", "dry_run=true").role_nodes[""].engine["devices"] == [0, 1, 2, 3]


def test_placement_changes_no_key_of_the_cache() -> None:
    settings = compose("dry_run=true").role_nodes[""].engine
    planned = compose("gpus=4", "dry_run=true").role_nodes[""].engine
    changes = {key: value for key, value in planned.items() if value != settings.get(key)}
    assert "devices" in changes
    fields = declared_fields(Vllm)
    assert [key for key, value in changes.items() if fields[key].is_in_identity(value)] == []


def test_devices_of_the_user_stay() -> None:
    assert compose("gpus=8", "engine.devices=[4]").role_nodes[""].engine["devices"] == [4]


def test_devices_of_the_user_are_not_planned_for_others() -> None:
    own = ("roles.reader=qwen3_8b@vllm", "roles.reader.engine.devices=[0,1]")
    plan = compose("gpus=4", *own).gpu_plan
    assert plan.roles["reader"].engine["devices"] == [0, 1]
    assert plan.roles[""].engine["devices"] == [2, 3]


@pytest.mark.parametrize(
    ("gpus", "text"), [("[4,5,7]", "4-5,7 (3 copies)"), ("[GPU-a,GPU-b]", "GPU-a,GPU-b (2 copies)")]
)
def test_plan_shows_the_names_of_gpus(gpus: str, text: str) -> None:
    plan = compose(f"gpus={gpus}").gpu_plan
    assert plan.placement is not None
    assert plan.devices is not None
    assert plan.placement.rows(plan.devices.names)[0][2] == text


def test_model_of_unknown_size_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"the size of model=.*model\.about\.parameters"):
        _ = compose_experiment(
            [*READER[:2], "engine=vllm", "model=owner/name", "model.context=4096", "gpus=2"]
        ).gpu_plan


def test_later_stage_closes_engines_on_its_gpus() -> None:
    with Session(compose(*JUDGE, "gpus=8")) as session:
        reader = session.engines("reader")
        session.judge_engines.make_room(session.judge_engines("judge"))
        assert session.engines("reader") is not reader


def test_models_of_a_stage_can_share_a_gpu() -> None:
    share = ("roles.reader=qwen3_8b@vllm", "roles.reader.engine.devices=[0]", "engine.devices=[0]")
    with Session(compose(*share)) as session:
        reader, other = session.engines("reader"), session.engines("")
        session.engines.make_room(other)
        assert session.engines("reader") is reader
        assert reader is not other


def test_plan_needs_no_weights(capsys: pytest.CaptureFixture[str]) -> None:
    from kgqa.cli.main import main

    search = ("retriever=e5_base_v2", "retriever.backend=flat")
    assert main(["run", *READER, *JUDGE, *search, "limit=2", "gpus=8", "dry_run=true"]) == 0
    output = capsys.readouterr().out
    assert "judge: llama3_3_70b_instruct  0-7 (2 copies, each split over 4)" in output
    assert "model calls" in output


def test_arguments_of_vllm_have_one_spelling() -> None:
    with (
        Session(compose("engine.extra_args={kv-cache-dtype:fp8}")) as session,
        pytest.raises(ConfigError, match=r"extra_args=kv-cache-dtype: write kv_cache_dtype"),
    ):
        session.engines("reader")
