"""`kgqa collect`: folders of examples."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kgqa.artifacts.examples import (
    CollectManifest,
    Positive,
    TrainingExample,
    id_hash,
    read_examples,
)
from kgqa.artifacts.metrics import Metrics
from kgqa.errors import DataError
from tests.e2e.conftest import QUICK, Kgqa, Ran, lines_of, refused, write_rules
from tests.e2e.test_verify import verify
from tests.golden.test_program_prompts import AGREED, TEACHER

KGP = ("collect", "kgp", "dataset=demo", "limit=8")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(Path.unlink, "no such file", id="missing"),
        pytest.param(
            lambda file: file.write_text("{}\n"), "changed since it was written", id="changed"
        ),
    ],
)
def test_damaged_examples_are_collected_again(
    kgqa: Kgqa, damage: Callable[[Path], object], message: str
) -> None:
    folder = kgqa(*KGP).folder
    content = (folder / "examples.jsonl").read_bytes()
    damage(folder / "examples.jsonl")
    wanted = rf"examples\.jsonl: {message}\. Run the command that made it again: kgqa collect"
    with pytest.raises(DataError, match=wanted):
        CollectManifest.read(folder)
    assert kgqa(*KGP).folder == folder
    assert (folder / "examples.jsonl").read_bytes() == content


def test_folder_of_other_examples_is_rejected(kgqa: Kgqa) -> None:
    assert kgqa(*KGP, "output_dir=out").code == 0
    refused(
        kgqa(*KGP, "collect.agent=llama", "output_dir=out"), "out belongs to another configuration"
    )


def test_run_is_no_folder_of_examples(kgqa: Kgqa) -> None:
    folder = kgqa("run", "method=no_context", "dataset=demo", "limit=1", *QUICK).folder
    with pytest.raises(DataError, match=r"manifest\.json: "):
        CollectManifest.read(folder)


def test_collect_runs_once_and_splits_by_question(kgqa: Kgqa) -> None:
    first = kgqa(*KGP, "collect.held_out=0.5")
    time = (first.folder / "examples.jsonl").stat().st_mtime_ns
    again = kgqa(*KGP, "collect.held_out=0.5")
    assert again.folder == first.folder
    assert f"{first.folder}: already complete" in again.out
    assert (again.folder / "examples.jsonl").stat().st_mtime_ns == time
    assert kgqa(*KGP, "collect.agent=llama").folder != first.folder
    collected = CollectManifest.read(first.folder)
    asked = {f"demo/{line['question']}" for line in lines_of(first.folder / "examples.jsonl")}
    out = set(collected.held_out)
    assert out < asked
    assert len(out) == round(0.5 * len(asked))
    hashes = {id_hash("demo", question.removeprefix("demo/")) for question in asked - out}
    assert set(collected.question_hashes) == hashes


def test_encoder_pairs_use_the_questions_own_negatives(kgqa: Kgqa) -> None:
    folder = kgqa("collect", "mdr", "dataset=demo", "limit=6").folder
    examples = [
        example
        for example in read_examples(folder / "examples.jsonl")
        if isinstance(example, Positive)
    ]
    firsts, seconds = ([e for e in examples if e.label == f"hop {hop}"] for hop in (1, 2))
    for first, second in zip(firsts, seconds, strict=True):
        assert second.anchor == f"{first.anchor} {first.positive}"
        assert not {first.positive, second.positive} & {*first.negatives, *second.negatives}
        assert len(first.negatives) == 2


BRIDGE = "Question: In which town was the architect of the Candle Bridge born\\?\nKnowledge:\n"
LESSONS = [
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
    ran = kgqa("run", "method=knowtrace", "dataset=demo", "limit=3", write_rules(LESSONS), *QUICK)
    assert ran.json("metrics.json")["scores"]["em"]["mean"] == pytest.approx(33.33, abs=0.01)
    return ran


def examples(ran: Ran) -> list[TrainingExample]:
    return [
        each
        for each in read_examples(ran.folder / "examples.jsonl")
        if isinstance(each, TrainingExample)
    ]


def test_backtraced_steps_of_answers_are_examples(kgqa: Kgqa, ran: Ran) -> None:
    collected = kgqa("collect", "knowtrace", "--from", str(ran.folder))
    lines = examples(collected)
    assert [(example.role, example.target) for example in lines] == [
        ("explorer", "No\nExplore:\n- Candle Bridge; architect"),
        ("completer", "<Candle Bridge; designed by; Ilse Ravenholt>"),
        ("explorer", "No\n- Ilse Ravenholt | birthplace"),
        ("completer", "<Ilse Ravenholt; born in; Pellery>"),
        ("explorer", "Yes\nThought: Ilse Ravenholt was born in Pellery.\nAnswer: Pellery"),
    ]
    assert [example.origin.place for example in lines] == [1, 1, 2, 2, 3]
    assert [(one["what"], one["why"]) for one in lines_of(collected.folder / "dropped.jsonl")] == [
        ("completer, reply 2", "backtracing removes all of it"),
        ("question", "the answer is wrong"),
        ("question", "the answer is wrong"),
    ]


RIGHT = '{"error_type": "Correct (No Error)", "diagnosis": "Fine.", "guidance": "Answer."}'
TAUGHT = [
    ("Question: Which bridge was opened first.*Plan:$", "no plan"),  # of 2hop__demo_02
    ("Plan:$", TEACHER["teach/plan"]),
    ("Steps:$", TEACHER["teach/solve"]),
    ("Check:$", AGREED),
    ("In its place:$", TEACHER["teach/corrupt"]),
    ("Feedback:$", TEACHER["teach/feedback"]),
    ("Audit:$", AGREED),
    ("First error:$", TEACHER["teach/first_error"]),
    ("Verdict:$", RIGHT),
    ("Step 1:$", " The town is unknown. (Logical)"),
    ("Step 2:$", " ####ANSWER: nowhere (Final Answer)"),
]
BY_MODEL = (
    "collect",
    "safe",
    "dataset=demo",
    "limit=3",
    "collect.teacher=model",
    "collect.balance=all",
    *QUICK,
)


@pytest.mark.slow
def test_labels_of_a_teacher_become_examples(kgqa: Kgqa) -> None:
    words = write_rules(TAUGHT, "teacher.jsonl")
    planned = kgqa(*BY_MODEL, words, "dry_run=true", "engine.rules=null")
    assert "33 model calls, 33 of them new" in planned.out
    assert not Path("outputs/examples").exists()
    ran = kgqa(*BY_MODEL, words)
    lines = examples(ran)
    assert {each.question for each in lines} == {"2hop__demo_01", "3hop1__demo_03"}
    # a right step and two wrong ones each
    assert len(lines) == 6
    assert {each.origin.made_by for each in lines} == {"teacher"}
    dropped = [(one["question"], one["why"]) for one in lines_of(ran.folder / "dropped.jsonl")]
    assert dropped == [("2hop__demo_02", "a reply to teach/plan cannot be read")]
    came = CollectManifest.read(ran.folder)
    (teacher,) = map(Path, came.teacher)
    # two tries; plan, steps, check, and those of each step
    assert Metrics.read(teacher).cost.paid.calls == 2 + 2 * (3 + 2 + 2 * 3)
    assert "| teacher | 6 |" in (ran.folder / "report.md").read_text(encoding="utf-8")


def test_hard_cases_are_first_errors_of_wrong_answers(kgqa: Kgqa) -> None:
    words = write_rules(TAUGHT, "teacher.jsonl")
    ran = kgqa("run", "method=safe", "dataset=demo", "limit=2", words, *QUICK)
    lines = examples(kgqa(*BY_MODEL, words, "--from", str(ran.folder), "collect.hard_cases=1"))
    hard = [each for each in lines if each.origin.made_by.startswith("hard case")]
    assert [(each.label, each.origin.place, each.role) for each in hard] == [
        ("Off-topic", 1, "feedback")
    ]
    assert json.loads(hard[0].target)["guidance"] == "Ask for the town."
    assert (
        "Step to judge: Step 1: The town is unknown. (Logical)"
        in hard[0].prompt.messages[0].content
    )
    assert len(lines) == 7


def test_noise_examples_come_from_flagged_questions(kgqa: Kgqa, tmp_path: Path) -> None:
    folder = verify(kgqa, tmp_path, "limit=9").folder
    ran = kgqa(
        "collect", "safe", "dataset=demo", f"dataset.verified={folder}", "collect.noise=5", *QUICK
    )
    lines = examples(ran)
    assert CollectManifest.read(ran.folder).made_by["rules, of a flagged question"] == 5
    assert {each.question for each in lines if each.origin.made_by == "rules"} == {"2hop__demo_01"}
    without = examples(
        kgqa("collect", "safe", "dataset=demo", f"dataset.verified={folder}", *QUICK)
    )
    assert without == [each for each in lines if each.origin.made_by == "rules"]


def test_what_does_not_fit_is_one_line(kgqa: Kgqa) -> None:
    write_rules([("", "Pellery")])
    run = ("run", "method=no_context", "dataset=demo", "limit=1", "engine.rules=rules.jsonl")
    assert kgqa(*run, *QUICK).code == 0
    for words, why in [
        (
            "knowtrace --from last",
            "no examples: no reply is suitable: forced, not readable, or of another method",
        ),
        (
            "safe dataset=demo --from last",
            "only a teacher finds hard cases. Set collect.teacher=model",
        ),
        (
            "safe dataset=demo roles.teacher=gpt_oss_120b",
            "rules use no teacher. Set collect.teacher=model",
        ),
        (
            "safe dataset=demo collect.teacher=model collect.hard_cases=0 --from last",
            "hard_cases=0 uses no runs",
        ),
        ("safe dataset=demo collect.noise=5", "which questions of demo are noise?"),
    ]:
        refused(kgqa("collect", *words.split(), *(QUICK if "safe" in words else ())), why)
