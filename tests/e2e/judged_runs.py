"""Finished runs of three questions, and the judges of their answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.e2e.conftest import QUICK, Kgqa, lines_of, write_rules

IDS = ["2hop__demo_01", "2hop__demo_02", "3hop1__demo_03"]
ANSWERS = {
    "2hop__demo_01": "Pellery",
    "2hop__demo_02": "the Candle Bridge",
    "3hop1__demo_03": "an abbess",
}
JUDGE = [
    ("Compare an answer.*Reference: Pellery", '{"verdict": "incorrect"}'),
    ("Compare an answer.*Reference: Candle", "CORRECT?? INCORRECT"),
    ("Compare an answer", '{"verdict": "correct"}'),
    ("Grade whether", "1"),
    ("Decide whether", '{"is_correct": "wrong", "reasoning": "no"}'),
    ("bridge was opened first", "Candle Bridge"),
]
JUDGED_BY = (
    "model=smollm2_135m",
    "engine=scripted",
    "engine.rules=rules.jsonl",
)  # `answered` writes the file


def answered(kgqa: Kgqa, name: str = "a", *overrides: str) -> Path:
    ran = kgqa(
        "run",
        "method=no_context",
        "limit=3",
        f"run_name={name}",
        *QUICK,
        write_rules(JUDGE),
        *overrides,
    )
    assert ran.code == 0, ran.err
    return ran.folder


def read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def verdicts(folder: Path) -> dict[str, str | None]:
    return {line["question_id"]: line["verdict"] for line in lines_of(folder / "verdicts.jsonl")}
