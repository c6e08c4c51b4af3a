"""`kgqa collect knowtrace`: what a finished run's own replies are worth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kgqa.artifacts.examples import Example, read_examples
from tests.e2e.conftest import QUICK, Kgqa, Ran

BRIDGE = "Question: In which town was the architect of the Candle Bridge born\\?\nKnowledge:\n"
RULES = [
    (f"{BRIDGE}none\nSufficient:$", " No\nExplore:\n- Candle Bridge | architect\n- Candle Bridge | colour"),
    (f"{BRIDGE}<[^\n]*Ilse Ravenholt>\n<[^\n]*>\nSufficient:$", " No\n- Ilse Ravenholt | birthplace"),
    (f"{BRIDGE}.*Pellery>.*\nSufficient:$", " Yes\nThought: Ilse Ravenholt was born in Pellery.\nAnswer: Pellery"),
    ("Relation: architect\nTriples:$", " <Candle Bridge; designed by; Ilse Ravenholt>"),
    ("Relation: colour\nTriples:$", " <Lantern Bridge; colour; red>"),
    ("Relation: birthplace\nTriples:$", " <Ilse Ravenholt; born in; Pellery>\n<Ilse Ravenholt; was; tall>"),
    ("Sufficient:$", " Yes\nThought: I guess.\nAnswer: nowhere"),
]  # fmt: skip


@pytest.fixture
def ran(kgqa: Kgqa) -> Ran:
    """Of three questions the first is answered right."""
    rules = [json.dumps({"match": match, "reply": reply}) for match, reply in RULES]
    Path("rules.jsonl").write_text("\n".join(rules), encoding="utf-8")
    ran = kgqa("run", "method=knowtrace", "dataset=demo", "limit=3", "engine.rules=rules.jsonl", *QUICK)
    assert ran.code == 0, ran.err
    assert ran.json("metrics.json")["scores"]["em"]["mean"] == pytest.approx(33.33, abs=0.01)
    return ran


def collected(kgqa: Kgqa, *given: str) -> tuple[list[Example], Path]:
    made = kgqa("collect", "knowtrace", *given)
    assert made.code == 0, made.err
    examples = [each for each in read_examples(made.folder / "examples.jsonl") if isinstance(each, Example)]
    return examples, made.folder


def test_what_backtracing_keeps_of_right_answers_is_learnt(kgqa: Kgqa, ran: Ran) -> None:
    examples, folder = collected(kgqa, "--from", str(ran.folder))
    assert [(example.role, example.target) for example in examples] == [
        ("explorer", "No\nExplore:\n- Candle Bridge; architect"),
        ("completer", "<Candle Bridge; designed by; Ilse Ravenholt>"),
        ("explorer", "No\n- Ilse Ravenholt | birthplace"),
        ("completer", "<Ilse Ravenholt; born in; Pellery>"),
        ("explorer", "Yes\nThought: Ilse Ravenholt was born in Pellery.\nAnswer: Pellery"),
    ]
    assert [example.origin.place for example in examples] == [1, 1, 2, 2, 3]
    lines = map(json.loads, (folder / "dropped.jsonl").read_text(encoding="utf-8").splitlines())
    dropped = [(one["what"], one["why"]) for one in lines]
    assert dropped == [
        ("completer, reply 2", "backtracing removes all of it"),
        ("question", "the answer is wrong"),
        ("question", "the answer is wrong"),
    ]


def test_a_run_of_another_method_has_no_lessons(kgqa: Kgqa) -> None:
    answers = Path("rules.jsonl")
    answers.write_text(json.dumps({"match": "", "reply": "Pellery"}), encoding="utf-8")
    kgqa("run", "method=no_context", "dataset=demo", "limit=1", f"engine.rules={answers}", *QUICK)
    refused = kgqa("collect", "knowtrace", "--from", "last")
    assert refused.code == 2
    assert "no examples: no reply is suitable: forced, not readable, or of another method" in refused.err
    assert len(refused.err.splitlines()) == 1
