"""Cells that need something trained: each names what, what makes it, and runs with what a person has."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgqa.cli import tree
from kgqa.cli.parsing import parse
from kgqa.config import factories as parts
from kgqa.config.composing import compose
from kgqa.config.overrides import parse_role
from kgqa.errors import ConfigError
from kgqa.experiment.session.engines import choose_nodes
from kgqa.reproduce.artifacts import artefact, artefacts
from kgqa.reproduce.cells import PlannedCell, choose_cells, plan_cells
from kgqa.reproduce.gpu_hours import in_all
from kgqa.reproduce.making import Making, Task, lacking
from kgqa.reproduce.reading import load_table, table_ids
from kgqa.reproduce.request import ReproduceRequest
from kgqa.system.availability import find_missing
from kgqa.training.bootstrap.request import BootstrapRequest
from kgqa.training.train.request import TrainRequest
from tests.adapters_for_tests import write_lora

CELLS = 268  # with twelve means of a row's columns
TRAINED = [cell for id_ in table_ids() for cell in load_table(id_).cells if cell.availability == "needs training"]


def cell(table_id: str, only: str, *given: str) -> PlannedCell:
    (planned,) = plan_cells(load_table(table_id), given, only)
    return planned


def test_every_cell_that_needs_training_names_what_and_what_makes_it() -> None:
    assert len(TRAINED) == CELLS
    for each in TRAINED:
        assert each.trained, each
        for _, name in each.trained:
            assert artefact(name).what
            assert artefact(name).makes


def test_nothing_is_described_that_no_cell_needs() -> None:
    needed = {name for each in TRAINED for _, name in each.trained}
    needed |= {other for name in needed for other in artefact(name).needs}
    assert {artefact(name).what for name in needed} == {described.what for described in artefacts().values()}
    assert {
        name for form, described in artefacts().items() for name in (*described.needs, form) if "{" not in name
    } <= needed


@pytest.mark.parametrize("name", sorted({name for each in TRAINED for _, name in each.trained}))
def test_the_commands_of_every_artefact_are_ones_that_kgqa_takes(name: str) -> None:
    """They parse, and compose with what is in conf/; what the last one trains has the artefact's name."""
    tasks = [task for tasks in Making.of([name]).tasks.values() for task in tasks]
    for task in tasks:
        command, *words = task.words
        given = parse(tree(), task.words)
        composed(command, given.places, given.overrides)
        assert task.cost.hours is not None
        assert task.cost.gigabytes < 80.1
    *_, (command, *words) = (task.words for task in tasks)
    if command == "bootstrap":
        request = BootstrapRequest.of(words)
        [filter_] = request.settings.filter
        assert name in {request.trained_name(filter_, k, role) for k in range(1, 5) for role in request.settings.train}
    if command == "train":
        training = TrainRequest.of(words[0], without_folder(words[1:]))
        assert training.name == name
        assert (None if training.training.learns_pairs else training.base.preset) == artefact(name).base


def without_folder(words: list[str]) -> list[str]:
    """That of examples is there only once they are collected."""
    return [word for word in words if not word.startswith("train.examples=")]


def composed(command: str, places: list[str], overrides: list[str]) -> None:
    if command == "train":
        (recipe,) = places
        request = TrainRequest.of(recipe, without_folder(overrides))
        assert request.training.collect is not None
        collects, *words = request.training.collect.split()
        composed("collect", [collects], [*words, *(word for word in overrides if not word.startswith("train."))])
    elif command in ("collect", "verify"):
        chosen = [f"collect={place}" for place in places] or ["verify=safe"]
        one = [word.partition(",")[0] if word.startswith("dataset=") else word for word in overrides]
        config = compose([*chosen, *one])
        assert parts.recipe(config["collect"]) if places else config["verify"]
    elif command == "bootstrap":
        assert BootstrapRequest.of(overrides).settings.rounds == 4
    else:
        compose(overrides)


def test_a_training_takes_the_very_examples_that_were_collected() -> None:
    """The command before it collects what its own words would collect."""
    for name in ("kgp_t5", "kgp_llama", "mdr", "dpr", "safe_evaluator_synthetic"):
        *_, collect, train = [task.words for task in Making.of([name]).distinct]
        request = TrainRequest.of(train[1], train[2:])
        assert request.training.collect is not None
        own = [word for word in train[2:] if not word.startswith("train.")]
        assert [*request.training.collect.split(), *own] == list(collect[1:])


def test_words_given_go_to_the_commands_that_take_them() -> None:
    given = ["train.base=smollm2_135m", "collect.held_out=0.5", "dataset=demo", "limit=8", "verify.swap_answers=true"]
    collect, train = [task.words for task in Making.of(["kgp_llama"], given).distinct]
    theirs = ("dataset.split=train", "collect.held_out=0.5", "dataset=demo", "limit=8")
    assert collect == ("collect", "kgp", "collect.agent=llama", *theirs)
    assert train == ("train", "kgp_llama", "dataset.split=train", "train.base=smollm2_135m", *theirs[1:])


def test_hours_memory_and_money_are_reckoned_from_what_is_learnt_and_asked() -> None:
    """8.2 billion parameters, 10,364 examples of 2,710 tokens, twice, at 38 % of 989 TFLOPs: 2.0 hours."""
    [*_, learns] = Making.of(["safe_evaluator"]).distinct
    assert learns.cost.hours == pytest.approx(10_364 * 2_710 * 2 * 6 * 8.2e9 / (989e12 * 0.38) / 3600)
    assert learns.cost.usd == pytest.approx(3 * (learns.cost.hours or 0))
    assert 8 < learns.cost.gigabytes < 24
    verify = Making.of(["safe_evaluator_synthetic"]).distinct[0].cost
    assert verify.hours == pytest.approx(167_454 * (3_800 * 2 * 5.1e9 / (989e12 * 0.38) + 3_000 / 4_650) / 3600)
    [few, *_] = Making.of(["safe_evaluator_synthetic"], ["limit=100"]).distinct
    assert few.cost.hours == pytest.approx((verify.hours or 0) * 100 / 167_454)


def test_commands_are_told_once_with_hours_and_what_they_are_reckoned_by() -> None:
    lines = list(Making.of(["kgp_t5", "mdr", "kgp_t5"]).lines())
    assert [line.partition(" (")[0] for line in lines if line.startswith("  ")] == [
        "  kgqa collect kgp collect.agent=t5 dataset=hotpotqa,musique dataset.split=train",
        "  kgqa train kgp_t5 dataset=hotpotqa,musique dataset.split=train",
        "  kgqa collect mdr dataset=hotpotqa,musique dataset.split=train",
        "  kgqa train mdr dataset=hotpotqa,musique dataset.split=train",
    ]
    assert lines[1].endswith("(no GPU)")
    assert "GPU hours" in lines[2]
    assert lines[-1].startswith("in all about ")
    assert "estimated: one H100 80 GB at 3.00 USD an hour, learning is 6 FLOPs" in lines[-1]
    adapters = [f"knowtrace-2wiki/round{k}/{role}" for k in (1, 2) for role in ("explorer", "completer")]
    assert len(Making.of(adapters).distinct) == 1
    assert "by the same" in list(Making.of(adapters).lines())[-2]


def rows_of_the_docs() -> list[str]:
    """What docs/TRAINING.md says of each artefact: its own commands, without those of what it needs."""
    rows = []
    for form in artefacts():
        tasks = Making.of([name := form.replace("{dataset}", "hotpotqa").replace("{round}", "4")]).tasks[name]
        own = in_all(task.cost for task in tasks)
        steps = ", ".join(
            f"{task.words[task.words[0] == 'data']} {task.cost.hours:.1f}" for task in tasks if task.cost.hours
        )
        rows.append(f"| `{form}` | {steps} | {own.gigabytes:.0f} GB | {own.usd or 0:.0f} USD |")
    return rows


def test_the_docs_say_what_is_reckoned() -> None:
    text = (Path(__file__).parents[2] / "docs" / "TRAINING.md").read_text(encoding="utf-8")
    assert [
        line for line in text.splitlines() if line.startswith("| `") and line.endswith(" USD |")
    ] == rows_of_the_docs()


def test_what_a_cell_lacks_is_neither_given_nor_replaced() -> None:
    cells = choose_cells(load_table("kgp/figure6"), "KNN-MDR,3")
    assert lacking(cells, []) == ["kgp_t5", "mdr"]
    assert lacking(cells, ["trained.mdr=x"]) == ["kgp_t5"]
    assert lacking(cells, ["trained.mdr=x", "roles.agent=flan_t5_base"]) == []


def test_a_role_takes_weights_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "judge.gguf").touch()
    planned = cell(
        "safe/table12", "Synthetic Only? Qwen 3 4B,2Wiki", f"trained.safe_evaluator_synthetic={tmp_path}/judge.gguf"
    )
    assert f"roles.feedback=qwen3_8b:{tmp_path}/judge.gguf@llamacpp" in planned.overrides
    model, engine, *_ = choose_nodes("roles.feedback", f"qwen3_8b:{tmp_path}/judge.gguf@llamacpp", {})
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
    assert find_missing(("retriever=dpr",))
    assert find_missing(("retriever=dpr", f"retriever.encoder.model={tmp_path}")) == []
    assert find_missing(("ranker=e5", f"ranker.model={tmp_path}")) == []


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
    assert parse_role(choice) == parts


def test_verification_keeps_its_own_keys() -> None:
    step = artefact("safe_evaluator_synthetic").makes[0]
    task = Task.of(step, ["verify.unparsable=noise", "collect.seed=1"])
    assert task.words[:2] == ("data", "verify")
    assert "verify.unparsable=noise" in task.words
    assert "collect.seed=1" not in task.words
