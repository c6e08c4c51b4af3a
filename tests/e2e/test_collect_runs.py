"""`kgqa collect knowtrace`: what a finished run's own replies are worth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kgqa.artifacts.call_schema import prompt_json
from kgqa.artifacts.collected import Collected
from kgqa.artifacts.examples import Example, read_dropped, read_examples
from kgqa.artifacts.stage import StageManifest
from kgqa.artifacts.trace import read_trace
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
        ("explorer", "No\nExplore:\n- Candle Bridge | architect"),
        ("completer", "<Candle Bridge; designed by; Ilse Ravenholt>"),
        ("explorer", "No\n- Ilse Ravenholt | birthplace"),
        ("completer", "<Ilse Ravenholt; born in; Pellery>"),
        ("explorer", "Yes\nThought: Ilse Ravenholt was born in Pellery.\nAnswer: Pellery"),
    ]
    assert [example.origin.place for example in examples] == [1, 1, 2, 2, 3]
    dropped = [(one.what, one.why) for one in read_dropped(folder / "dropped.jsonl")]
    assert dropped == [
        ("completer, reply 2", "backtracing keeps nothing of it"),
        ("question", "the answer is wrong"),
        ("question", "the answer is wrong"),
    ]


def test_prompts_are_those_of_the_run(kgqa: Kgqa, ran: Ran) -> None:
    examples, _ = collected(kgqa, "--from", "last")
    asked = [c.request["prompt"] for t in read_trace(ran.folder) for c in t.calls if c.kind == "generate"]
    assert all(prompt_json(example.prompt) in asked for example in examples)


def knowledge(example: Example) -> str:
    return example.prompt.messages[-1].content.rpartition("Knowledge:\n")[2].strip()


def test_explorations_can_be_told_the_support_alone(kgqa: Kgqa, ran: Ran) -> None:
    """All else of their prompts stays, and so do completions and what is learnt."""
    told, folder = collected(kgqa, "--from", "last")
    support, other = collected(kgqa, "--from", "last", "collect.memory=support")
    designed, born = "<Candle Bridge; designed by; Ilse Ravenholt>", "<Ilse Ravenholt; born in; Pellery>"
    red, tall = "<Lantern Bridge; colour; red>", "<Ilse Ravenholt; was; tall>"
    assert [knowledge(one) for one in told if one.role == "explorer"] == [
        "none", f"{designed}\n{red}", f"{designed}\n{red}\n{born}\n{tall}",
    ]  # fmt: skip
    explored = [one for one in support if one.role == "explorer"]
    assert [knowledge(one) for one in explored] == ["none", designed, f"{designed}\n{born}"]
    assert [(one.id, one.target) for one in support] == [(one.id, one.target) for one in told]
    for one, before in zip(support, told, strict=True):
        if one.role == "completer":
            assert one == before
        else:
            [message], [whole] = one.prompt.messages, before.prompt.messages
            assert message.content == whole.content.replace(f"\n{red}", "").replace(f"\n{tall}", "")
    assert folder != other


def test_a_graph_that_a_model_told_is_not_told_anew(kgqa: Kgqa) -> None:
    rules = [
        (f"{BRIDGE}none\nSufficient:$", RULES[0][1]), (RULES[3][0], RULES[3][1]), (RULES[4][0], RULES[4][1]),
        (f"{BRIDGE}It is known.\nSufficient:$", RULES[2][1]), ("Sufficient:$", RULES[-1][1]), ("", "It is known."),
    ]  # fmt: skip
    lines = [json.dumps({"match": match, "reply": reply}) for match, reply in rules]
    Path("rules.jsonl").write_text("\n".join(lines), encoding="utf-8")
    words = ("method=knowtrace", "method.memory=texts", "dataset=demo", "limit=1", "engine.rules=rules.jsonl")
    ran = kgqa("run", *words, *QUICK)
    refused = kgqa("collect", "knowtrace", "--from", str(ran.folder), "collect.memory=support")
    assert refused.code == 2
    assert "was asked otherwise than its method asks now: a template or an example has changed" in refused.err
    assert len(refused.err.splitlines()) == 1
    assert kgqa("collect", "knowtrace", "--from", str(ran.folder)).code == 0


def test_a_method_that_knows_no_support_is_named(kgqa: Kgqa) -> None:
    Path("rules.jsonl").write_text(json.dumps({"match": "", "reply": "Pellery"}), encoding="utf-8")
    kgqa("run", "method=no_context", "dataset=demo", "limit=1", "engine.rules=rules.jsonl", *QUICK)
    refused = kgqa("collect", "knowtrace", "--from", "last", "collect.memory=support")
    assert refused.code == 2
    assert "its method has no `support_prompts`, as knowtrace has; give collect.memory=full" in refused.err


def test_without_backtracing_all_replies_of_right_answers_are_learnt(kgqa: Kgqa, ran: Ran) -> None:
    examples, folder = collected(kgqa, "--from", "last", "collect.filter=none")
    assert [example.target for example in examples] == [RULES[at][1].strip() for at in (0, 3, 4, 1, 5, 2)]
    assert folder != collected(kgqa, "--from", "last")[1]


def test_the_share_that_is_filtered_is_of_right_answers_alone(kgqa: Kgqa, ran: Ran) -> None:
    _, folder = collected(kgqa, "--from", "last")
    came = StageManifest.read(folder, "collect knowtrace").read_outcome(Collected, folder)
    (first,) = [t.prediction.figures for t in read_trace(ran.folder) if t.prediction.answer == "Pellery"]
    share = 100 * first["filtered_tokens"] / first["written_tokens"]
    assert came.figures["right answers"] == 1
    ends = ("", ", low end of its interval", ", high end")  # of one answer that is no interval
    assert [came.figures[f"FA, percent of tokens filtered{end}"] for end in ends] == pytest.approx([share] * 3)
    assert came.dropped["the answer is wrong"] == 2


def test_a_run_of_another_method_has_no_lessons(kgqa: Kgqa) -> None:
    answers = Path("rules.jsonl")
    answers.write_text(json.dumps({"match": "", "reply": "Pellery"}), encoding="utf-8")
    kgqa("run", "method=no_context", "dataset=demo", "limit=1", f"engine.rules={answers}", *QUICK)
    refused = kgqa("collect", "knowtrace", "--from", "last")
    assert refused.code == 2
    assert "not one example: no reply is a lesson: forced, not readable, or of a method that has none" in refused.err
    assert len(refused.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("collect knowtrace", "needs finished runs; give --from RUN"),
        ("collect knowtrace --from nowhere", "nowhere: not the folder of a run"),
        ("collect knowtrace collect.filter=some", "collect.filter=some: input should be"),
    ],
)
def test_a_mistake_is_one_line(kgqa: Kgqa, command: str, message: str) -> None:
    refused = kgqa(*command.split())
    assert refused.code == 2
    assert message in refused.err


def test_runs_are_no_material_for_what_takes_questions(kgqa: Kgqa, ran: Ran) -> None:
    refused = kgqa("collect", "kgp", "--from", str(ran.folder))
    assert "collect kgp needs questions, not runs" in refused.err
