"""A scripted verifier: only the answer Pellery follows from its triples, and of the answer 1846 it cannot say."""

from __future__ import annotations

import json
from pathlib import Path

from kgqa.types import Json
from tests.e2e.conftest import Kgqa, Ran

TRIPLES = {"triples": [["Candle Bridge", "designed_by", "Ilse Ravenholt"], ["Ilse Ravenholt", "born_in", "Pellery"]]}
RULES = [
    ("Missing:$", {"triples": []}),
    ("Groups:$", {"groups": [["Ilse Ravenholt", "Candle Bridge"]]}),
    ("Answer: Pellery\n.*Path:$", {"is_valid": True, "reasoning_path": TRIPLES["triples"], "explanation": "by birth"}),
    ("Answer: 1846\n.*Path:$", "I cannot say."),  # of 2hop__demo_09
    ("Path:$", {"is_valid": False, "reasoning_path": [], "explanation": "nothing says so"}),
    ("Triples:$", TRIPLES),
]


def rules(folder: Path) -> str:
    """The override that has the scripted engine verify."""
    file = folder / "rules.jsonl"
    texts = ((match, reply if isinstance(reply, str) else json.dumps(reply)) for match, reply in RULES)
    file.write_text("".join(json.dumps({"match": match, "reply": reply}) + "\n" for match, reply in texts))
    return f"engine.rules={file}"


def verified(kgqa: Kgqa, folder: Path, *more: str) -> Ran:
    return kgqa("data", "verify", "engine=scripted", rules(folder), *more)


def outcome(folder: Path) -> Json:
    return json.loads((folder / "manifest.json").read_text())["outcome"]


def lines(folder: Path) -> list[Json]:
    return [json.loads(line) for line in (folder / "verdicts.jsonl").read_text(encoding="utf-8").splitlines()]


def of_questions(folder: Path) -> dict[str, str]:
    return {line["id"]: line["verdict"] for line in lines(folder)}
