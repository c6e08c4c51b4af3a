"""SAFE's labelled steps by rules: ideal solutions of gold decompositions, and one error of each type in them."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from kgqa.artifacts.examples import Dropped, ExampleSource, Recipe, TrainingExample
from kgqa.calls import Call, CountTokens, Generate
from kgqa.config import building as parts
from kgqa.config.composing import compose
from kgqa.engines.chat import ChatTemplate
from kgqa.engines.thinking import Thinking
from kgqa.extras.training.collect.facts import NextFacts
from kgqa.extras.training.collect.safe import JudgedSteps
from kgqa.extras.training.collect.safe_rules import (
    JudgedStep,
    NotTaught,
    Solution,
    plan,
    sample_late,
)
from kgqa.extras.training.collect.safe_teacher import Ideal, Teacher
from kgqa.methods.kgp import Kgp
from kgqa.methods.safe import CITED, Safe
from kgqa.methods.steps.safe_verdict import CORRECT, errors
from kgqa.testing import drive
from kgqa.types import Completion, Hop, Json, Passage, Question
from tests.golden.test_program_prompts import AGREED, TEACHER
from tests.golden.test_program_prompts import QUESTION as TAUGHT
from tests.unit.test_chat import CHATML

PETRA = Passage.of(
    "Petra (film)", "Petra is a film by Jaime Rosales. It was shown in Cannes in spring."
)
ROSALES = Passage.of(
    "Jaime Rosales (director)",
    "Jaime Rosales was born on 3 May 1970 in Barcelona. He likes chess a lot.",
)
ASIDE = Passage.of("Reed Lake", "Reed Lake is a novel of many pages. It was written by Ada Holm.")
BRIDGE = Question(
    "b", "When was the director of Petra born?", ("3 May 1970",), (ASIDE, PETRA, ROSALES),
    frozenset({PETRA.id, ROSALES.id}), type="compositional",
    decomposition=(Hop("Petra, director", "Jaime Rosales"), Hop("Jaime Rosales, date of birth", "3 May 1970")),
)  # fmt: skip


def solution(question: Question = BRIDGE) -> Solution:
    steps = plan(question, question.passages, random.Random(0))
    return Solution(steps, question.passages, question.support, {}, random.Random(0))


def comparing(answer: str, other: str = "Norway") -> Question:
    first, second = (
        Passage.of("Ada", "Ada is in Norway, too."),
        Passage.of("Gorm", f"Gorm is in {other} as it seems."),
    )
    hops = (Hop("Ada, country", "Norway", first.id), Hop("Gorm, country", other, second.id))
    gold = frozenset({first.id, second.id})
    return Question(
        "c", "?", (answer,), (ASIDE, first, second), gold, type="comparison", decomposition=hops
    )


@pytest.mark.parametrize(
    ("question", "why"),
    [
        pytest.param(replace(BRIDGE, decomposition=()), "no decomposition", id="no decomposition"),
        pytest.param(
            replace(BRIDGE, answers=("Barcelona",)),
            "the last fact is not the answer",
            id="other answer",
        ),
        pytest.param(
            replace(BRIDGE, support=frozenset({PETRA.id})),
            "no gold passage has the answer",
            id="gold passage without answer",
        ),
        pytest.param(
            comparing("yes", "Sweden"), "does not follow", id="comparison without a result"
        ),
        pytest.param(comparing("Reed Lake"), "none of what is compared", id="comparison of others"),
    ],
)
def test_what_the_passages_do_not_bear_out_has_no_plan(question: Question, why: str) -> None:
    with pytest.raises(NotTaught, match=why):
        plan(question, question.passages, random.Random(0))


def corrupted(right: Solution, error: str, seed: int) -> JudgedStep:
    step = right.corrupt(error, random.Random(seed))
    assert step is not None
    return step


@pytest.mark.parametrize("error", errors("released"))
@pytest.mark.parametrize("seed", range(5))
def test_error_follows_right_steps(error: str, seed: int) -> None:
    right = solution()
    step = corrupted(right, error, seed)
    assert (step.verdict.error_type, step.accepted) == (error, right.steps[: step.number - 1])
    assert step.text != right.steps[step.number - 1]
    assert step.verdict.guidance == right.instruction(step.number)


@pytest.mark.parametrize("seed", range(5))
def test_errors_follow_right_steps_and_match_names(seed: int) -> None:
    right = solution()
    texts = {error: corrupted(right, error, seed).text for error in errors("released")}
    assert CITED.findall(texts["Off-topic"]) == CITED.findall(texts["Unsupported"]) == ["1"]
    assert CITED.findall(texts["Overthinking"])[0] in "23"
    assert "Passage" in texts["Contradictory"]
    assert not any(fact.claim in texts["Contradictory"] for fact in right.plan.facts)
    assert right.plan.facts[0].claim in texts["Redundancy"]
    assert right.plan.facts[1].claim in texts["Premature Attribution"]


@cache
def configured(**changes: object) -> tuple[JudgedSteps, Safe]:
    config = compose(["collect=safe"])
    recipe, method = (
        parts.build_part(config["collect"], "collect", Recipe),
        parts.method(config["method"]),
    )
    assert isinstance(recipe, JudgedSteps)
    assert isinstance(method, Safe)
    return replace(recipe, **changes), method  # type: ignore[arg-type]


def collect_examples(*questions: Question, **changes: object) -> list[TrainingExample]:
    recipe, method = configured(**changes)
    collected = recipe.collect([ExampleSource("mine", questions, method)], lambda _: {})
    return [example for example in collected if isinstance(example, TrainingExample)]


def test_labels_are_balanced_and_errors_late() -> None:
    questions = [BRIDGE, replace(BRIDGE, id="b2"), comparing("yes")]
    labels = Counter(example.label for example in collect_examples(*questions))
    assert {labels[error] for error in errors("paper")} == {2}
    assert labels[CORRECT] == 10  # 34 to 66
    assert set(Counter(e.label for e in collect_examples(*questions, labels="released"))) == {
        *errors("released"),
        CORRECT,
    }
    recipe, method = configured(balance="all")
    short = replace(method, max_feedback_characters=90)
    examples = [*recipe.collect([ExampleSource("mine", questions, short)], lambda _: {})]
    verdicts = [json.loads(each.target) for each in examples if isinstance(each, TrainingExample)]
    assert 40 < max(len(verdict["diagnosis"]) for verdict in verdicts) <= 90
    assert "longer than method.max_feedback_characters" in {
        each.why for each in examples if isinstance(each, Dropped)
    }
    chance = random.Random(0)
    places = Counter(sample_late(range(1, 4), chance) for _ in range(7000))
    assert [round(places[place] / 500) for place in (1, 2, 3)] == [1, 4, 9]


ASKED = replace(TAUGHT, support=frozenset(passage.id for passage in TAUGHT.passages))
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


def hard_case(*errors: Json, attempts: list[Json] | None = None) -> Any:
    replies = iter(errors)
    steps = [{"text": f"step {n}", "accepted": True, "verdict": VERDICT} for n in (1, 2, 3)]
    program = teacher().hard_case(ASKED, "Oslo", attempts or steps)
    return drive(program, lambda _: Completion(json.dumps(next(replies))))


def finding(step: int, error: str) -> dict[str, Json]:
    return {"step": step, "error_type": error, "diagnosis": "so", "guidance": "do that"}


def test_right_steps_and_each_error_are_labeled() -> None:
    examples, calls = taught()
    labels = Counter(label for label, _ in examples)
    assert labels == {CORRECT: 4, **dict.fromkeys(errors("paper"), 1)}
    steps = [(label, step) for label, step in examples if isinstance(step, JudgedStep)]
    assert len(steps) == len(examples)
    assert [(step.verdict.error_type, len(step.accepted)) for _, step in steps] == [
        (label, step.number - 1) for label, step in steps
    ]
    ideal = Ideal("", "", ("Attribution", "Attribution", "Logical"), ("", "", ""), ("", "", "", ""))
    assert ideal.numbers("Wrong Conclusion") == ideal.numbers("Overthinking") == [4]
    assert (ideal.numbers("Logical Fallacy"), ideal.numbers("Premature Attribution")) == ([3], [1])
    assert (ideal.numbers("Unsupported"), ideal.numbers("Redundancy")) == ([1, 2], [2, 3])
    assert {call.role for call in calls} == {"teacher"}
    assert all(call.schema for call in calls)
    warm = [call for call in calls if call.temperature > 0]
    assert [call.prompt.name for call in warm] == ["teach/corrupt"] * 3
    names = {
        name
        for call in warm
        for name in errors("paper")
        if f"\n{name}: " in call.prompt.messages[0].content
    }
    assert names == {"Unsupported", "Off-topic", "Redundancy"}


@pytest.mark.parametrize(
    ("template", "answer", "why"),
    [
        pytest.param(
            "teach/plan",
            '{"plan": [{"kind": "Attribution", "do": "x"}]}',
            "a reply to teach/plan cannot be read",
            id="unreadable plan",
        ),
        pytest.param(
            "teach/solve",
            '{"steps": [{"claim": "x", "passage": 1}]}',
            "the solution does not have one step for each",
            id="too few steps",
        ),
        pytest.param(
            "teach/solve",
            TEACHER["teach/solve"].replace(": 2}", ": 7}"),
            "an ideal step cites no gold passage",
            id="no gold passage",
        ),
        pytest.param(
            "teach/solve",
            TEACHER["teach/solve"].replace("he was", "Passage 2: he was"),
            "a claim names a passage",
            id="claim names a passage",
        ),
        pytest.param(
            "teach/check",
            AGREED.replace("true", "false"),
            "the ideal steps did not pass the check",
            id="check fails",
        ),
    ],
)
def test_question_without_sound_solution_is_skipped(template: str, answer: str, why: str) -> None:
    with pytest.raises(NotTaught, match=why):
        taught({template: answer})


def test_audit_and_second_plan_of_the_teacher() -> None:
    disagreed = {"teach/audit": AGREED.replace("true", "false")}
    assert {why for _, why in taught(disagreed)[0]} == {"the auditor does not agree"}
    assert [isinstance(step, JudgedStep) for _, step in taught(disagreed, audit=False)[0]] == [
        True
    ] * 14
    replies = iter(["no", TEACHER["teach/plan"]])

    def reply(call: Call[Any]) -> Completion:
        assert isinstance(call, Generate)
        name = call.prompt.name
        return Completion(next(replies) if name == "teach/plan" else TEACHER[name])

    assert drive(teacher().teach(ASKED, random.Random(1)), reply)
    # a reply that cannot be read is asked for once more
    assert next(replies, None) is None


def test_two_checks_find_first_error_or_bad_guidance() -> None:
    [(label, step)] = hard_case(finding(2, "Unsupported"), finding(2, "Contradictory"))
    assert (label, step.number, step.accepted, step.text) == (
        "Contradictory",
        2,
        ("step 1",),
        "step 2",
    )
    assert tuple(step.verdict) == ("Contradictory", "so", "do that")
    [(label, step)] = hard_case(finding(3, "Unsupported"), finding(3, "Misleading Guidance"))
    assert (label, step.number) == (CORRECT, 2)
    assert tuple(step.verdict) == (CORRECT, "Passage 1 says so.", "do that")


@pytest.mark.parametrize(
    ("looks", "why"),
    [
        pytest.param(
            (finding(1, "Unsupported"), finding(2, "Unsupported")),
            "the teacher finds the error in another step",
            id="different steps",
        ),
        pytest.param(
            (finding(2, "Off-topic"), finding(2, "Dataset Error")),
            "the passages do not lead to the right answer",
            id="no way to the answer",
        ),
        pytest.param(
            (finding(4, "Off-topic"), finding(4, "Off-topic")),
            "there is no such step",
            id="no such step",
        ),
        pytest.param(
            (finding(1, "Off-topic"), finding(1, "Misleading Guidance")),
            "there is no such step",
            id="no guidance before",
        ),
    ],
)
def test_two_checks_that_disagree_are_skipped(looks: tuple[Json, Json], why: str) -> None:
    with pytest.raises(NotTaught, match=why):
        hard_case(*looks)


TEMPLATES = [
    ChatTemplate("{{ bos_token }}" + CHATML, "<s>", "</s>", completion_bos=True),
    ChatTemplate(CHATML, "", "</s>", completion_bos=False, thinking=Thinking()),
    ChatTemplate(None, "<s>", "</s>", completion_bos=True),  # a base model
]
every_template = pytest.mark.parametrize("template", TEMPLATES)


def rendered(template: ChatTemplate, example: TrainingExample) -> str:
    return template.render(Generate(example.prompt, 1, role=example.role))


@every_template
def test_safe_evaluator_prompt_equals_training_prompt(template: ChatTemplate) -> None:
    recipe, method = configured(balance="all")
    examples = recipe.collect([ExampleSource("mine", [BRIDGE], method)], lambda _: {})
    right = [
        example
        for example in examples
        if isinstance(example, TrainingExample) and example.label == CORRECT
    ]
    steps = [
        e.prompt.messages[0].content.rpartition("Step to judge: ")[2].partition(": ")[2]
        for e in right
    ]
    asked: list[Generate] = []

    def serve(call: Any) -> Any:
        if isinstance(call, CountTokens):
            return 1
        if call.role != "feedback":
            return Completion(f" {steps[len(asked)]}")
        asked.append(call)
        return Completion(f" {right[len(asked) - 1].target}")

    answer = drive(replace(method, feedback="model").answer(BRIDGE), serve)
    assert answer.text == BRIDGE.answers[0]
    assert [template.render(call) for call in asked] == [
        rendered(template, example) for example in right
    ]


@every_template
@pytest.mark.parametrize("agent", ["t5", "llama"])
def test_kgp_agent_prompt_equals_training_prompt(template: ChatTemplate, agent: Any) -> None:
    first, second = (
        Passage.of("Reed Lake", "Ada Holm wrote it."),
        Passage.of("Ada Holm", "She was born in Gorm."),
    )
    hops = (
        Hop("Who wrote Reed Lake?", "Ada Holm", first.id),
        Hop("Where was #1 born?", "Gorm", second.id),
    )
    question = Question(
        "q",
        "Where was the author of Reed Lake born?",
        ("Gorm",),
        (first, second),
        decomposition=hops,
    )
    method = parts.method(compose(["method=kgp"])["method"])
    assert isinstance(method, Kgp)
    recipe = NextFacts({}, 0.1, agent=agent, seed=0)
    (example,) = (
        each for each in recipe.collect([ExampleSource("mine", [question], method)], lambda _: {})
    )
    assert isinstance(example, TrainingExample)
    asked: list[Generate] = []

    def serve(call: Call[Any]) -> Any:
        assert isinstance(call, Generate)
        asked.append(call)
        return Completion(example.target)

    evidence = drive(
        replace(method, agent=agent).request_evidence(question, (first,), Counter()), serve
    )
    assert evidence == example.target == second.text
    assert template.render(asked[0]) == rendered(template, example)
