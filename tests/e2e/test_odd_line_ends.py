"""Characters that Python's splitlines takes for the end of a line are part of ids, titles, texts and replies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import Kgqa


@pytest.mark.parametrize("end", ["\u2028", "\u0085"], ids=ascii)
def test_a_run_ends_and_is_read_again_whatever_its_texts_hold(kgqa: Kgqa, end: str) -> None:
    passage = {"idx": 0, "title": f"Elm{end}Road", "paragraph_text": f"In Pellery{end}town.", "is_supporting": True}
    asked = {
        "id": f"2hop__{end}1", "question": f"Where{end}is it?", "answer": f"Pellery{end}town", "answer_aliases": [],
        "paragraphs": [passage], "question_decomposition": [], "answerable": True,
    }  # fmt: skip
    Path("own.jsonl").write_text(json.dumps(asked, ensure_ascii=False) + "\n", encoding="utf-8")
    rule = {"match": "", "reply": f"Pellery{end}town"}
    Path("rules.jsonl").write_text(json.dumps(rule, ensure_ascii=False) + "\n", encoding="utf-8")
    words = ("dataset=musique", "dataset.path=own.jsonl", "engine=scripted", "engine.rules=rules.jsonl")
    ran = kgqa("run", "method=all_documents", *words, "run_name=odd")
    assert ran.code == 0, ran.err
    for command in (("show",), ("report",), ("evaluate",), ("report", "--format", "jsonl", "--out", "exported")):
        again = kgqa(*command, str(ran.folder))
        assert again.code == 0, (command, again.err)
    assert json.loads((ran.folder / "metrics.json").read_text(encoding="utf-8"))["scores"]["em"]["mean"] == 100
