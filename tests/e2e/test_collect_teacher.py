"""`kgqa collect safe` by a scripted teacher; questions that verification flagged, and hard cases of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kgqa.artifacts.examples import Collected, Example, read_examples
from kgqa.artifacts.manifest import StageManifest
from tests.e2e.conftest import QUICK, Kgqa, Ran
from tests.e2e.verifying import verified
from tests.golden.test_program_prompts import AGREED, TEACHER

RIGHT = '{"error_type": "Correct (No Error)", "diagnosis": "Fine.", "guidance": "Answer."}'
RULES = [
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
BY_MODEL = ("collect", "safe", "dataset=demo", "limit=3", "collect.teacher=model", "collect.balance=all", *QUICK)


@pytest.fixture
def words(tmp_path: Path) -> str:
    """The override that has the scripted engine teach."""
    rules = [json.dumps({"match": match, "reply": reply}) for match, reply in RULES]
    (tmp_path / "teacher.jsonl").write_text("\n".join(rules), encoding="utf-8")
    return "engine.rules=teacher.jsonl"


def outcome(folder: Path) -> Collected:
    return StageManifest.read(folder, "collect safe").read_outcome(Collected, folder)


def examples(ran: Ran) -> list[Example]:
    assert ran.code == 0, ran.err
    return [each for each in read_examples(ran.folder / "examples.jsonl") if isinstance(each, Example)]


def test_a_teachers_labels_are_examples_and_what_it_cannot_say_is_none(kgqa: Kgqa, words: str) -> None:
    ran = kgqa(*BY_MODEL, words)
    made = examples(ran)
    assert {each.question for each in made} == {"2hop__demo_01", "3hop1__demo_03"}
    assert len(made) == 6  # a right step and two wrong ones each
    assert {each.origin.made_by for each in made} == {"teacher"}
    lines = map(json.loads, (ran.folder / "dropped.jsonl").read_text(encoding="utf-8").splitlines())
    dropped = [(one["question"], one["why"]) for one in lines]
    assert dropped == [("2hop__demo_02", "a reply to teach/plan cannot be read")]
    came = outcome(ran.folder)
    assert came.cost is not None
    assert came.cost.paid.calls == 2 + 2 * (3 + 2 + 2 * 3)  # two tries; plan, steps, check, and those of each step
    assert "| teacher | 6 |" in (ran.folder / "report.md").read_text(encoding="utf-8")


def test_a_dry_run_counts_the_teachers_calls(kgqa: Kgqa, words: str) -> None:
    planned = kgqa(*BY_MODEL, words, "dry_run=true", "engine.rules=null")
    assert planned.code == 0, planned.err
    assert "33 model calls, 33 of them new" in planned.out
    assert not Path("outputs/examples").exists()


def test_hard_cases_are_the_first_errors_of_a_runs_wrong_answers(kgqa: Kgqa, words: str) -> None:
    ran = kgqa("run", "method=safe", "dataset=demo", "limit=2", words, *QUICK)
    assert ran.code == 0, ran.err
    made = examples(kgqa(*BY_MODEL, words, "--from", str(ran.folder), "collect.hard_cases=1"))
    hard = [each for each in made if each.origin.made_by.startswith("hard case")]
    assert [(each.label, each.origin.place, each.role) for each in hard] == [("Off-topic", 1, "feedback")]
    assert json.loads(hard[0].target)["guidance"] == "Ask for the town."
    assert "Step to judge: Step 1: The town is unknown. (Logical)" in hard[0].prompt.messages[0].content
    assert len(made) == 7


def test_noise_is_of_questions_that_verification_flagged(kgqa: Kgqa, tmp_path: Path) -> None:
    folder = verified(kgqa, tmp_path, "limit=9").folder
    ran = kgqa("collect", "safe", "dataset=demo", f"dataset.verified={folder}", "collect.noise=5", *QUICK)
    made = examples(ran)
    assert outcome(ran.folder).made_by["rules, of a flagged question"] == 5
    assert {each.question for each in made if each.origin.made_by == "rules"} == {"2hop__demo_01"}
    without = examples(kgqa("collect", "safe", "dataset=demo", f"dataset.verified={folder}", *QUICK))
    assert without == [each for each in made if each.origin.made_by == "rules"]


def test_what_does_not_fit_is_one_line(kgqa: Kgqa) -> None:
    assert kgqa("run", "method=no_context", "dataset=demo", "limit=1", *QUICK).code == 0
    for words, why in [
        ("dataset=demo --from last", "only a teacher finds hard cases. Set collect.teacher=model"),
        ("dataset=demo collect.teacher=model collect.hard_cases=0 --from last", "collect.hard_cases=0 uses no runs"),
        ("dataset=demo roles.teacher=gpt_oss_120b", "rules use no teacher. Set collect.teacher=model"),
        ("dataset=demo collect.noise=5", "collect.noise: which questions of demo are noise? Set dataset.verified="),
    ]:
        refused = kgqa("collect", "safe", *words.split(), *QUICK)
        assert refused.code == 2
        assert why in refused.err
        assert len(refused.err.strip().splitlines()) == 1
