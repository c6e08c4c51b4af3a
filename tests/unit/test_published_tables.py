"""The files of published tables: all are there, compose, and are refused by name and key where they are wrong."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.config.files import flatten, groups
from kgqa.config.overrides import merge_overrides
from kgqa.errors import ConfigError, DataError
from kgqa.reproduce.tables import load_table, table_ids
from tests.composed import composed_node
from tests.unit.small_table import SMALL, table_of

# what the five papers print or plot as results, and one table each of four others
PUBLISHED = {
    "trace": "table1 table2 table5 table6 table7 table8 table9 figure3 figure4 figure8 figure9 figure10 figure11",
    "knowtrace": "table1 table2 table3 table4 figure4 figure5",
    "kgp": "table1 table2 table3 figure1 figure5 figure6 figure7 figure9 figure10",
    "ircot": "table1 table3 table4 table6 figure3 figure4 figure5 figure6 figure7 figure8 figure9",
    "safe": "table2 table3 table4 table8 table12 figure2 figure3 figure4 figure10",
    "hipporag2": "table2",
    "linearrag": "table1",
    "searchr1": "table2",
    "arag": "table1",
}


def test_every_results_table_and_sweep_figure_of_the_five_papers_is_there() -> None:
    assert set(table_ids()) == {f"{paper}/{name}" for paper, names in PUBLISHED.items() for name in names.split()}


@pytest.mark.parametrize("table_id", table_ids())
def test_every_cell_that_could_run_composes_and_builds_its_method(table_id: str) -> None:
    """With the substitute of a retired model, and with a trained one named."""
    table = load_table(table_id)
    for cell in table.cells:
        if (
            cell.availability in ("run", "model retired", "needs training")
            and cell.column != table.average
            and not cell.mean_of
        ):
            trained = tuple(f"{key}=smollm2_135m" for key, _ in cell.trained)
            assert composes(merge_overrides(cell.overrides, cell.substitute, trained)), cell


@cache
def composes(overrides: tuple[str, ...]) -> bool:
    """Compose methods and presets. Of other groups look at names and keys: composing every cell takes minutes."""
    choices, values, known = [], {}, set[str]()
    has_second = any("@" in override.partition("=")[0] for override in overrides)
    for override in overrides:
        key, _, value = override.partition("=")
        if key in ("method", "experiment") or "@" in key or (has_second and key in ("graph", "retriever")):
            choices.append(override)
        elif key in groups():
            assert value == "null" or value in groups()[key], override
            known |= flatten({key: composed_node(key, value)}).keys() if value != "null" else set()
        else:
            values[key] = yaml.safe_load(value)
    config = composed(tuple(choices))
    known |= flatten(config).keys()
    absent = [key for key in values if key not in known and not any(each.startswith(f"{key}.") for each in known)]
    assert not absent, f"{overrides}: unknown keys"
    method = copy.deepcopy(config["method"])
    for key, value in values.items():
        if key.startswith("method."):
            *folders, last = key.split(".")[1:]
            part = method
            for folder in folders:
                part = part[folder]
            part[last] = value
    return build(method, "method") is not None


@cache
def composed(choices: tuple[str, ...]) -> dict[str, Any]:
    return compose(choices)


def test_the_parts_of_a_table_fit_together() -> None:
    for table_id in table_ids():
        table = load_table(table_id)
        assert len(set(table.rows)) == len(table.rows)
        assert not table.against or table.against in [metric.name for metric in table.metrics]
        for metric in table.metrics:
            assert (metric.path is None) == bool(metric.why), metric
        for cell in table.cells:
            assert cell.column in table.columns, cell
            assert len(cell.values) == len(table.metrics), cell
            assert cell.why or cell.availability == "run", cell
            assert bool(cell.trained) == (cell.availability == "needs training"), cell
            assert not cell.substitute or cell.availability == "model retired", cell
            assert set(cell.mean_of) <= set(table.rows), cell


@pytest.mark.parametrize(
    ("written", "instead", "complaint"),
    [
        ("title: A table", "titel: A table", "titel: extra inputs are not permitted"),
        ("availability: needs training", "availability: training", "rows.1.availability: input should be"),
        ("rows:", "rows: [", "not readable:"),
        ("source: text", "source: text\nbase: 3", "base: 3: must name a file in the same folder"),
    ],
)
def test_invalid_files(tmp_path: Path, written: str, instead: str, complaint: str) -> None:
    with pytest.raises(DataError) as caught:
        table_of(tmp_path, SMALL.replace(written, instead, 1))
    assert complaint in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "table1.yaml"))


def test_a_table_says_what_its_base_does_not(tmp_path: Path) -> None:
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
    for cell in (old, new):
        assert (cell.availability, cell.why) == ("model retired", "Nobody serves it.")
        assert cell.substitute == ("model=gpt_4o_mini",)


def test_an_unknown_table_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"trace/tabel1: no such table or figure\. Did you mean trace/table1"):
        load_table("trace/tabel1")
