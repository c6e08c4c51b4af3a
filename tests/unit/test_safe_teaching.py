"""SAFE's teacher: what comes of its replies, and what of them teaches nothing."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kgqa.artifacts.examples import NotTaught
from kgqa.calls import Call, Generate
from kgqa.methods.safe_teaching import Ideal, Teacher
from kgqa.methods.steps.safe_rules import JudgedStep
from kgqa.methods.steps.safe_verdict import CORRECT, errors
from kgqa.testing import drive
from kgqa.types import Completion, Json
from tests.golden.test_program_prompts import AGREED, QUESTION, TEACHER
from tests.unit.test_safe_rules import configured

ASKED = replace(QUESTION, support=frozenset(passage.id for passage in QUESTION.passages))
VERDICT = {"error_type": CORRECT, "diagnosis": "Passage 1 says so.", "guidance": "Answer now."}


def teacher(**changes: Any) -> Teacher:
    recipe, method = configured()
    settings = {"errors_each": len(errors("paper")), "correct_each": 4, **changes}
    return Teacher(method, replace(recipe, **settings))


def taught(
    replies: Mapping[str, str] = {}, **changes: Any
) -> tuple[list[tuple[str, JudgedStep | str]], list[Generate]]:
    calls: list[Generate] = []

    def reply(call: Call[Any]) -> Completion:
        assert isinstance(call, Generate)
        calls.append(call)
        return Completion({**TEACHER, **replies}[call.prompt.name])

    return drive(teacher(**changes).teach(ASKED, random.Random(1)), reply), calls


def hard_case(*found: Json, attempts: list[Json] | None = None) -> Any:
    replies = iter(found)
    told = [{"text": f"step {n}", "accepted": True, "verdict": VERDICT} for n in (1, 2, 3)]
    program = teacher().hard_case(ASKED, "Oslo", attempts or told)
    return drive(program, lambda _: Completion(json.dumps(next(replies))))


def finding(step: int, error: str) -> dict[str, Json]:
    return {"step": step, "error_type": error, "diagnosis": "so", "guidance": "do that"}


def test_right_steps_and_one_step_of_each_error_are_labelled() -> None:
    made, _ = taught()
    labels = Counter(label for label, _ in made)
    assert labels == {CORRECT: 4, **dict.fromkeys(errors("paper"), 1)}
    for label, step in made:
        assert isinstance(step, JudgedStep)
        assert step.verdict.error_type == label
        assert len(step.accepted) == step.number - 1


def test_errors_stand_where_they_can_be() -> None:
    ideal = Ideal("", "", ("Attribution", "Attribution", "Logical"), ("", "", ""), ("", "", "", ""))
    assert ideal.numbers("Wrong Conclusion") == ideal.numbers("Overthinking") == [4]
    assert ideal.numbers("Logical Fallacy") == [3]
    assert ideal.numbers("Premature Attribution") == [1]
    assert ideal.numbers("Unsupported") == [1, 2]
    assert ideal.numbers("Redundancy") == [2, 3]


def test_some_errors_are_sampled_and_all_replies_are_closed() -> None:
    _, calls = taught()
    assert {call.role for call in calls} == {"teacher"}
    assert all(call.schema for call in calls)
    warm = [call for call in calls if call.temperature > 0]
    assert [call.prompt.name for call in warm] == ["teach/corrupt"] * 3
    names = {name for call in warm for name in errors("paper") if f"\n{name}: " in call.prompt.messages[0].content}
    assert names == {"Unsupported", "Off-topic", "Redundancy"}


def test_what_the_auditor_refuses_is_dropped() -> None:
    made, _ = taught({"teach/audit": AGREED.replace("true", "false")})
    assert {why for _, why in made} == {"the auditor does not agree"}
    unaudited, _ = taught({"teach/audit": AGREED.replace("true", "false")}, audit=False)
    assert [isinstance(step, JudgedStep) for _, step in unaudited] == [True] * 14


@pytest.mark.parametrize(
    ("template", "reply", "why"),
    [
        ("teach/plan", "I cannot", "a reply to teach/plan cannot be read"),
        ("teach/plan", '{"plan": [{"kind": "Attribution", "do": "x"}]}', "a reply to teach/plan cannot be read"),
        ("teach/solve", '{"steps": [{"claim": "x", "passage": 1}]}', "the solution does not have one step for each"),
        ("teach/solve", TEACHER["teach/solve"].replace(": 2}", ": 7}"), "an ideal step cites no gold passage"),
        ("teach/solve", TEACHER["teach/solve"].replace("he was", "Passage 2: he was"), "a claim names a passage"),
        ("teach/check", AGREED.replace("true", "false"), "the ideal steps did not pass the check"),
    ],
)  # fmt: skip
def test_a_question_without_a_sound_solution_teaches_nothing(template: str, reply: str, why: str) -> None:
    with pytest.raises(NotTaught, match=why):
        taught({template: reply})


def test_a_reply_that_cannot_be_read_is_asked_for_once_more() -> None:
    replies = iter(["no", TEACHER["teach/plan"]])

    def reply(call: Call[Any]) -> Completion:
        assert isinstance(call, Generate)
        name = call.prompt.name
        return Completion(next(replies) if name == "teach/plan" else TEACHER[name])

    assert drive(teacher().teach(ASKED, random.Random(1)), reply)
    assert next(replies, None) is None


def test_the_first_error_of_a_wrong_answer_is_what_both_looks_find() -> None:
    label, step = hard_case(finding(2, "Unsupported"), finding(2, "Contradictory"))
    assert (label, step.number, step.accepted, step.text) == ("Contradictory", 2, ("step 1",), "step 2")
    assert tuple(step.verdict) == ("Contradictory", "so", "do that")


def test_guidance_that_misled_is_taught_at_the_step_before() -> None:
    label, step = hard_case(finding(3, "Unsupported"), finding(3, "Misleading Guidance"))
    assert (label, step.number) == (CORRECT, 2)
    assert tuple(step.verdict) == (CORRECT, "Passage 1 says so.", "do that")


@pytest.mark.parametrize(
    ("looks", "why"),
    [
        ((finding(1, "Unsupported"), finding(2, "Unsupported")), "the teacher finds the error in another step"),
        ((finding(2, "Off-topic"), finding(2, "Dataset Error")), "the passages do not lead to the right answer"),
        ((finding(9, "Off-topic"), finding(9, "Off-topic")), "there is no such step"),
        ((finding(1, "Off-topic"), finding(1, "Misleading Guidance")), "there is no such step"),
    ],
)
def test_what_the_two_looks_do_not_settle_teaches_nothing(looks: tuple[Json, Json], why: str) -> None:
    with pytest.raises(NotTaught, match=why):
        hard_case(*looks)
