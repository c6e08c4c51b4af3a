"""Finished runs of three questions, and the judges of their answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.e2e.conftest import QUICK, Kgqa, Ran

IDS = ["2hop__demo_01", "2hop__demo_02", "3hop1__demo_03"]
ANSWERS = {"2hop__demo_01": "Pellery", "2hop__demo_02": "the Candle Bridge", "3hop1__demo_03": "an abbess"}
JUDGE = [
    {"match": "Compare an answer.*Reference: Pellery", "reply": '{"verdict": "incorrect"}'},
    {"match": "Compare an answer.*Reference: Candle", "reply": "CORRECT?? INCORRECT"},
    {"match": "Compare an answer", "reply": '{"verdict": "correct"}'},
    {"match": "Grade whether", "reply": "1"},
    {"match": "Decide whether", "reply": '{"is_correct": "wrong", "reasoning": "no"}'},
    {"match": "bridge was opened first", "reply": "Candle Bridge"},
]
JUDGED_BY = ("model=smollm2_135m", "engine=scripted", "engine.rules=rules.jsonl")  # `rules` writes the file


def rules(records: list[dict[str, str]] = JUDGE, name: str = "rules.jsonl") -> str:
    Path(name).write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return f"engine.rules={name}"


def answered(kgqa: Kgqa, name: str = "a", *overrides: str) -> Path:
    ran = kgqa("run", "method=no_context", "limit=3", f"run_name={name}", *QUICK, rules(), *overrides)
    assert ran.code == 0, ran.err
    return ran.folder


def read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def verdicts(folder: Path) -> dict[str, str | None]:
    read_lines = (json.loads(line) for line in (folder / "verdicts.jsonl").read_text(encoding="utf-8").splitlines())
    return {line["question_id"]: line["verdict"] for line in read_lines}


def refused(ran: Ran, said: str) -> None:
    assert ran.code == 2, ran.out
    assert said in ran.err
    assert ran.err.count("\n") == 1
