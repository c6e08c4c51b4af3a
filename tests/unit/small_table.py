"""A small published table, as a file and as the cells planned of it."""

from __future__ import annotations

from pathlib import Path

from kgqa.reproduce.cells import PlannedCell, plan_cells
from kgqa.reproduce.tables import PublishedTable, read_table

SMALL = """
title: A table
paper: trace
place: Table 1
source: text
scorer: trace
given: [model=llama3_8b_instruct]
metrics: {EM: scores.em, F1: scores.f1}
settings: {reader: [LLaMA-3, model]}
columns: {Demo: [dataset=demo], MuSiQue: [dataset=musique]}
rows:
  - name: Direct
    overrides: [method=no_context]
    published: {Demo: [10.0, 20.0], MuSiQue: [1, null]}
  - name: Trained
    overrides: [method=safe, method.feedback=model]
    availability: needs training
    why: Its model is not public.
    trained: {roles.feedback: safe_evaluator}
    published: {Demo: [30.0, 40.0]}
  - name: Retired
    overrides: [method=no_context]
    availability: model retired
    why: Nobody serves it.
    substitute: [model=gpt_4o_mini, engine=openai]
    published: {Demo: [50.0, 60.0]}
"""


def table_of(tmp_path: Path, text: str, table_id: str = "trace/table1") -> PublishedTable:
    file = tmp_path / "table1.yaml"
    file.write_text(text, encoding="utf-8")
    return read_table(file, table_id)


def cells_of(tmp_path: Path, *arguments: str, only: str | None = None) -> dict[str, PlannedCell]:
    return {cell.name: cell for cell in plan_cells(table_of(tmp_path, SMALL), arguments, only)}
