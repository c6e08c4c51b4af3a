"""Two published cells have equal settings only where the paper has them, too: conf/reproduce/shared.yaml says where."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
import yaml
from pydantic import BaseModel, ConfigDict

from kgqa.reproduce.tables import load_table, table_ids
from kgqa.util.plugins import package_conf


class Shared(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    tables: tuple[str, ...]
    why: str
    within: str = ""


LISTED = yaml.safe_load((package_conf() / "reproduce" / "shared.yaml").read_text(encoding="utf-8"))
SHARED = [Shared.model_validate(entry) for entry in LISTED]


def equal_cells() -> dict[object, list[tuple[str, str]]]:
    """Table and name of each cell that could run, by what it runs with: overrides, and what is trained for it."""
    cells: dict[object, list[tuple[str, str]]] = defaultdict(list)
    for table in map(load_table, table_ids()):
        for cell in table.cells:
            if cell.mean_of:
                continue  # of other rows' runs
            if cell.column != table.average and cell.availability not in ("quoted", "human", "not built"):
                settings = frozenset(cell.overrides), cell.trained
                cells[settings].append((table.id, f"{table.id}: {cell.row} · {cell.column}"))
    return {settings: named for settings, named in cells.items() if len(named) > 1}


GROUPS = list(equal_cells().values())


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group[0][1])
def test_cells_of_equal_settings_are_one_experiment_in_the_paper(group: list[tuple[str, str]]) -> None:
    tables = Counter(table for table, _ in group)
    said = [entry for entry in SHARED if tables.keys() <= set(entry.tables)]
    names = [name for _, name in group]
    assert said, f"{names}: equal settings; set what differs, or say in shared.yaml why they are one"
    assert max(tables.values()) == 1 or any(entry.within for entry in said), f"{names}: in one table"


@pytest.mark.parametrize("entry", SHARED, ids=lambda entry: " ".join(entry.tables))
def test_nothing_is_listed_that_shares_no_settings(entry: Shared) -> None:
    within = [{table for table, _ in group} for group in GROUPS]
    here = [tables for tables in within if tables <= set(entry.tables)]
    assert set().union(*here) == set(entry.tables)


def test_evaluators_that_were_trained_otherwise_are_other_cells() -> None:
    """SAFE's Tables 4 and 12."""
    trained = {
        cell.row: dict(cell.trained) for id_ in ("table4", "table12") for cell in load_table(f"safe/{id_}").cells
    }
    assert trained["Original, Qwen 3 8B"] == trained["+ Refined, Qwen 3 8B"] == {"roles.feedback": "safe_evaluator"}
    assert trained["+ Noise, Qwen 3 8B"] == {"roles.feedback": "safe_evaluator_noise"}
    assert trained["Synthetic Only, Qwen 3 8B"] == {"roles.feedback": "safe_evaluator_synthetic"}
