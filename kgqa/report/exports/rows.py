"""The run's own two tables as JSON lines: predictions and calls."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from kgqa.artifacts.run import FinishedRun
from kgqa.report.tables import call_rows, prediction_rows
from kgqa.types import Json
from kgqa.util.fs import OUT_ELSEWHERE, create_private, explain_storage_errors

PREDICTIONS, CALLS = "predictions.jsonl", "traces.jsonl"


def write_rows(run: FinishedRun, folder: Path) -> None:
    write_jsonl(prediction_rows(run), folder / PREDICTIONS)
    write_jsonl(call_rows(run), folder / CALLS)


def write_jsonl(rows: Iterable[Mapping[str, Json]], file: Path) -> None:
    # a lone surrogate becomes JSON's own escape
    with (
        explain_storage_errors(file, OUT_ELSEWHERE),
        create_private(file).open("w", encoding="utf-8", errors="backslashreplace") as out,
    ):
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
