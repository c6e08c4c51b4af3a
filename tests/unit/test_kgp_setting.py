"""The rows of KGP's Table 1 share collection, passages and reader."""

from __future__ import annotations

from typing import Any

import pytest

from kgqa.calls import Call, CountTokens, Generate, Neighbours, Rank, Search
from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.reproduce.tables import load_table, table_ids
from kgqa.testing import drive
from kgqa.types import Completion, Passage, Question

POOL = tuple(Passage.of(f"T{number}", f"text {number}") for number in range(40))
QUESTION = Question("q", "Which one?", ("text 1",), POOL, frozenset({POOL[1].id, POOL[2].id}))
ROWS = ("kgp_none", "kgp_retrieve", "kgp_mdr", "kgp_ircot", "kgp_golden", "kgp_setting")


def last_prompt(experiment: str) -> str:
    asked: list[str] = []

    def reply(call: Call[Any]) -> Any:
        match call:
            case Generate():
                asked.append(f"{call.prompt.name}\n{call.prompt.messages[-1].content}")
                return Completion(" text 1 is what is asked.")
            case Search():
                return (call.pool or ())[: call.k]
            case Neighbours():
                return POOL[20:]
            case Rank():
                return tuple(0.0 for _ in call.texts)
            case CountTokens():
                return len(call.text.split())
        raise AssertionError(call)

    drive(build(compose([f"experiment={experiment}"])["method"], "method").answer(QUESTION), reply)
    return asked[-1]


@pytest.mark.parametrize("row", ROWS)
def test_every_row_is_read_by_the_same_reader_over_the_same_collection(row: str) -> None:
    assert compose([f"experiment={row}"])["choices"]["collection"] == "kgp"
    assert last_prompt(row).startswith("kgp/answer\n")


def test_one_step_retrieval_and_ircot_read_at_most_thirty_passages_and_kgp_thirty_paths() -> None:
    assert "\n30: text 29\n" in last_prompt("kgp_retrieve")
    assert "\n31: " not in last_prompt("kgp_retrieve")
    ircot = compose(["experiment=kgp_ircot"])["method"]
    assert (ircot["max_passages"], ircot["passages_per_step"], ircot["few_shot"]["sample_size"]) == (30, 5, 2)
    assert "\n30: text 9\ntext 2\n" in last_prompt("kgp_mdr")
    assert "\n31: " not in last_prompt("kgp_mdr")
    assert "\n30: " in last_prompt("kgp_setting")
    assert "\n31: " not in last_prompt("kgp_setting")


@pytest.mark.parametrize("table_id", [each for each in table_ids() if each.startswith("kgp/")])
def test_the_cells_of_a_row_are_run_by_the_rows_experiment(table_id: str) -> None:
    """So a table cannot leave the setting that docs/KGP.md names; Figures 5 and 9 ask no model."""
    for cell in load_table(table_id).cells:
        assert any(each.startswith(("experiment=kgp_", "method=neighbourhood")) for each in cell.overrides), cell
