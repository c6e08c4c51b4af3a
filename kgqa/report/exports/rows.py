"""The run's own two tables as JSON lines: predictions and calls."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from kgqa.artefacts.run import FinishedRun
from kgqa.report.tables import call_rows, prediction_rows
from kgqa.storage import OUT_ELSEWHERE, begun, storing
from kgqa.types import Json

PREDICTIONS, CALLS = "predictions.jsonl", "traces.jsonl"


def write_rows(run: FinishedRun, folder: Path) -> None:
    write_jsonl(prediction_rows(run), folder / PREDICTIONS)
    write_jsonl(call_rows(run), folder / CALLS)


def write_jsonl(rows: Iterable[Mapping[str, Json]], file: Path) -> None:
    # a lone surrogate becomes JSON's own escape
    with storing(file, OUT_ELSEWHERE), begun(file).open("w", encoding="utf-8", errors="backslashreplace") as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
